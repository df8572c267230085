// Forward pass of depthwise layers in NCHW. A warp processes a strip of one channel from top to bottom and reads every
// element of x once, into registers. Warps do not synchronize.
//     y[oh, ow] = bias + sum over taps, kh then kw ascending, of  x[(oh + padding - kh) / S, ...] * w[kh, kw]
// Rows are counted from the padded output's edge, so that all H phases of row q read rows q, q - 1, .... Columns are
// counted from the unpadded output's edge, so that a lane's results form one vector. The W padding is therefore a
// template parameter. Launched by depthwise/launch.cpp.
#pragma once

#include "depthwise/rows.cuh"

namespace convt::depthwise {

template <DataType kDataType, int kKernelValue, int kStrideValue>
struct DepthwiseForwardTraits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kKernel = kKernelValue;
  static constexpr int kStride = kStrideValue;
  static constexpr int kTaps = (kKernel + kStride - 1) / kStride;  // maximum per axis and phase
  static constexpr int kColumns = depthwise_columns(kDataType, Direction::kForward);  // columns of y per lane
  static constexpr int kOwn = kColumns / kStride;  // columns of x per lane
  static constexpr int kAhead = 2;  // rows of x in flight
  static_assert(kColumns % kStride == 0);
};

// Columns of x that a lane's results read, relative to its first own column.
template <typename Traits, int kPadding>
struct ForwardWindow {
  static constexpr int kStride = Traits::kStride;

  // Tap t of result column i: its kw, and its column of x.
  static __host__ __device__ constexpr int tap(int i, int t) { return (i + kPadding) % kStride + kStride * t; }
  static __host__ __device__ constexpr int column(int i, int t) { return (i + kPadding) / kStride - t; }

  static constexpr int furthest(bool before) {
    int columns = 0;
    for (int i = 0; i < Traits::kColumns; ++i) {
      for (int t = 0; t < Traits::kTaps; ++t) {
        if (tap(i, t) >= Traits::kKernel) continue;
        const int beyond = before ? -column(i, t) : column(i, t) - (Traits::kOwn - 1);
        if (beyond > columns) columns = beyond;
      }
    }
    return columns;
  }
  static constexpr int kBefore = furthest(true);
  static constexpr int kBehind = furthest(false);
  static_assert(kBefore <= Traits::kOwn && kBehind <= Traits::kOwn);
};

template <typename Traits, int kPadding, bool kWhole>
__device__ __forceinline__ void depthwise_forward(const DepthwiseParams& params, const Strip& strip) {
  using Element = typename Traits::Element;
  using Window = ForwardWindow<Traits, kPadding>;
  using Rows = DepthwiseRows<Element, Traits::kOwn, Window::kBefore, Window::kBehind, kWhole>;
  constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kTaps = Traits::kTaps;
  constexpr int kColumns = Traits::kColumns, kAhead = Traits::kAhead;
  float r_weight[kKernel][kKernel];
  load_weight<Element>(params, strip.channel, r_weight);
  const float bias = params.bias == nullptr
                         ? -0.0f  // adding -0 leaves every sum unchanged
                         : element::to_accumulator(static_cast<const Element*>(params.bias)[strip.channel]);
  const int32_t column = (strip.strip * 32 + strip.lane) * Traits::kOwn, result_column = column * kStride;
  int32_t q = params.first_row + strip.chunk * params.rows;
  const int32_t end = min(q + params.rows, params.first_row + params.num_rows);
  const auto* g_plane =
      static_cast<const Element*>(params.x) + strip.image * params.x_stride[0] + strip.channel * params.x_stride[1];
  Rows rows(g_plane, params.x_stride, q - (kTaps - 1), min(end, params.h.in), column, params.w.in, params.x_vectors,
            strip.lane);
  int32_t result_row = q * kStride - params.h.padding;
  auto* g_results = static_cast<Element*>(params.y) + strip.image * params.y_stride[0] +
                    strip.channel * params.y_stride[1] + result_row * params.y_stride[2] +
                    result_column * params.y_stride[3];
  const bool stores_vectors = params.y_vectors && result_column + kColumns <= params.w.out;

  float r_windows[kTaps][Rows::kWindow];  // rows q, q - 1, ... of x
#pragma unroll
  for (int t = kTaps - 1; t > 0; --t) {
    typename Rows::Raw raw{};
    rows.load(raw);
    rows.finish(raw, r_windows[t]);
  }
  typename Rows::Raw r_ahead[kAhead] = {};
#pragma unroll
  for (int k = 0; k < kAhead; ++k) rows.load(r_ahead[k]);
  // Computes all phases of row q. kAllRows: these result rows and the rows of x that they read exist.
  auto compute = [&](auto all_rows) {
    constexpr bool kAllRows = all_rows();
#pragma unroll
    for (int phase = 0; phase < kStride; ++phase) {
      if (!kAllRows && (result_row + phase < 0 || result_row + phase >= params.h.out)) continue;
      float r_acc[kColumns] = {};
#pragma unroll
      for (int t_h = 0; t_h < kTaps; ++t_h) {
        const int k_h = phase + kStride * t_h;
        if (k_h >= kKernel || (!kAllRows && (q - t_h < 0 || q - t_h >= params.h.in))) continue;
#pragma unroll
        for (int t_w = 0; t_w < kTaps; ++t_w) {
#pragma unroll
          for (int i = 0; i < kColumns; ++i) {
            const int k_w = Window::tap(i, t_w), place = Window::column(i, t_w) + Window::kBefore;
            if (k_w >= kKernel || !rows.has(place)) continue;
            r_acc[i] = element::fused_multiply_add(r_windows[t_h][place], r_weight[k_h][k_w], r_acc[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) r_acc[i] = element::add(r_acc[i], bias);
      element::Vector<Element, kColumns> results;
      results.round(r_acc);
      Element* g_row = g_results + phase * params.y_stride[2];
      if (stores_vectors) {
        results.store(g_row);
      } else if constexpr (!kWhole) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          if (result_column + i < params.w.out) results.store(i, g_row + i * params.y_stride[3]);
        }
      }
    }
  };
  while (true) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      rows.finish(r_ahead[k], r_windows[0]);
      if (q >= kTaps - 1 && q < params.h.in && result_row >= 0 && result_row + kStride <= params.h.out) {
        compute(std::true_type{});
      } else {
        compute(std::false_type{});
      }
      if (++q >= end) return;
      result_row += kStride;
      g_results += kStride * params.y_stride[2];
#pragma unroll
      for (int t = kTaps - 1; t > 0; --t) {
#pragma unroll
        for (int i = 0; i < Rows::kWindow; ++i) r_windows[t][i] = r_windows[t - 1][i];
      }
      rows.load(r_ahead[k]);
    }
  }
}

template <typename Traits, int kPadding>
__device__ __forceinline__ void depthwise_forward(const DepthwiseParams& params, const Strip& strip) {
  const int32_t column = (strip.strip * 32 + strip.lane) * Traits::kOwn;
  const int32_t result_column = column * Traits::kStride;
  const bool has_columns = column + Traits::kOwn <= params.w.in;
  // A lane without results may own columns that the previous lane needs.
  const bool whole = result_column < params.w.out ? has_columns && result_column + Traits::kColumns <= params.w.out
                                                  : has_columns || column >= params.w.in;
  if (__all_sync(0xffffffffu, params.x_vectors && params.y_vectors && whole) != 0) {
    depthwise_forward<Traits, kPadding, true>(params, strip);
  } else {
    depthwise_forward<Traits, kPadding, false>(params, strip);
  }
}

// The planner only admits W paddings below kKernel.
template <typename Traits>
__global__ void __launch_bounds__(kDepthwiseThreads, 5)
    depthwise_forward_kernel(const __grid_constant__ DepthwiseParams params) {
  const Strip strip(params);
  if (strip.number >= params.num_warps) return;
  auto run = [&](auto padding) {
    if constexpr (padding() < Traits::kKernel) depthwise_forward<Traits, padding()>(params, strip);
  };
  switch (params.w.padding) {
    case 0: return run(std::integral_constant<int, 0>{});
    case 1: return run(std::integral_constant<int, 1>{});
    case 2: return run(std::integral_constant<int, 2>{});
    default: return run(std::integral_constant<int, 3>{});
  }
}

}  // namespace convt::depthwise
