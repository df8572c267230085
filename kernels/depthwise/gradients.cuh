// Gradients of depthwise layers in NCHW. Every element of grad_output is read once, into registers. Warps do not
// synchronize. Both gradients stream the rows of grad_output:
//     gx[ih, iw]  = sum over taps, kh then kw ascending, of  gy[ih * S - padding + kh, ...] * w[kh, kw]
//     slab[kh, kw] = sum over a lane's pixels ascending of   x[ih, iw] * gy[...], then over the lanes of the warp, in
//     halves
// Launched by depthwise/launch.cpp.
#pragma once

#include "depthwise/rows.cuh"
#include "ptx/warp_reduce.cuh"

namespace convt::depthwise {

template <DataType kDataType, int kKernelValue, int kStrideValue, bool kOfInputValue>
struct DepthwiseTraits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr bool kOfInput = kOfInputValue;
  static constexpr int kKernel = kKernelValue;
  static constexpr int kStride = kStrideValue;
  static constexpr int kKept = kKernel - kStride;                  // columns that neighbours share
  static constexpr int kRows = (kKernel + kStride - 1) / kStride;  // maximum pixel rows that read one row
  static constexpr int kSteps = kOfInput ? 2 : 1;                  // groups of kStride rows of grad_output in flight
  static constexpr int kColumns = depthwise_columns(kDataType, Direction::kGradInput);  // per lane
  static constexpr int kPixels = kColumns / kStride;                                    // pixels per lane and row
  static_assert(kStride <= kKernel && kKept <= kColumns && kColumns % kStride == 0);
};

// Pixels of a warp: rows h .. h_end - 1, columns from w on, kPixels per lane.
struct PixelStrip : Strip {
  int32_t h;
  int32_t h_end;
  int32_t w;  // first column of the lane

  __device__ __forceinline__ PixelStrip(const DepthwiseParams& params, int32_t lane_pixels) : Strip(params) {
    h = chunk * params.rows;
    h_end = min(h + params.rows, params.h.in);
    w = (strip * 32 + lane) * lane_pixels;
  }
};

template <typename Traits, int kPadding, bool kWhole>
using GradientRows =
    DepthwiseRows<typename Traits::Element, Traits::kColumns, kPadding, Traits::kKept - kPadding, kWhole>;

// Calls use(rows, ih, later, r_row, k_h) for every row of grad_output that pixel rows h .. h_end - 1 read, from top to
// bottom: once for each of the kRows pixel rows that read it, where it is tap row k_h of pixel row ih + later. These
// may be outside the strip. Calls done(ih) after the last row that pixel row ih reads. Loads of the next rows are in
// flight meanwhile.
template <typename Traits, int kPadding, bool kWhole, typename Use, typename Done>
__device__ __forceinline__ void slide(const DepthwiseParams& params, const PixelStrip& strip, Use use, Done done) {
  constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kSteps = Traits::kSteps;
  using Element = typename Traits::Element;
  using Rows = GradientRows<Traits, kPadding, kWhole>;
  int32_t ih = strip.h - (Traits::kRows - 1);
  int32_t row = ih * kStride - params.h.padding + kKernel - kStride;  // first row that no earlier pixel row reads last
  const int32_t end = min((strip.h_end - 1) * kStride - params.h.padding + kKernel, params.h.out);
  const auto* g_plane =
      static_cast<const Element*>(params.y) + strip.image * params.y_stride[0] + strip.channel * params.y_stride[1];
  Rows rows(g_plane, params.y_stride, row, end, strip.w * kStride, params.w.out, params.y_vectors, strip.lane);
  typename Rows::Raw r_ahead[kSteps][kStride] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int k = 0; k < kStride; ++k) rows.load(r_ahead[step][k]);
  }
  while (true) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step, row += kStride) {
      // Wait once for all rows of a step.
      float r_rows[kStride][Rows::kWindow];
#pragma unroll
      for (int k = 0; k < kStride; ++k) rows.finish(r_ahead[step][k], r_rows[k]);
#pragma unroll
      for (int k = 0; k < kStride; ++k) {
        if (row + k < 0 || row + k >= params.h.out) continue;
#pragma unroll
        for (int later = 0; later < Traits::kRows; ++later) {
          const int k_h = kKernel - kStride + k - later * kStride;
          if (k_h >= 0) use(rows, ih, later, r_rows[k], k_h);
        }
      }
      // Load a row after the last use of its registers. Otherwise the compiler would allocate other registers, and the
      // moves from them would wait for the loads.
#pragma unroll
      for (int k = 0; k < kStride; ++k) rows.load(r_ahead[step][k]);
      done(ih);
      if (++ih >= strip.h_end) return;
    }
  }
}

template <typename Traits, int kPadding, bool kWhole>
__device__ __forceinline__ void depthwise_grad_input(const DepthwiseParams& params, const PixelStrip& strip) {
  using Element = typename Traits::Element;
  constexpr int kKernel = Traits::kKernel, kPixels = Traits::kPixels, kRows = Traits::kRows;
  float r_weight[kKernel][kKernel];
  load_weight<Element>(params, strip.channel, r_weight);
  auto* g_pixels = static_cast<Element*>(params.x) + strip.image * params.x_stride[0] +
                   strip.channel * params.x_stride[1] + strip.w * params.x_stride[3] + strip.h * params.x_stride[2];
  float r_acc[kRows][kPixels] = {};  // [0]: the next pixel row to be completed
  auto use = [&](const auto& rows, int32_t, int later, const auto& r_row, int k_h) {
#pragma unroll
    for (int k_w = 0; k_w < kKernel; ++k_w) {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int i = p * Traits::kStride + k_w;
        if (!rows.has(i)) continue;
        r_acc[later][p] = element::fused_multiply_add(r_row[i], r_weight[k_h][k_w], r_acc[later][p]);
      }
    }
  };
  slide<Traits, kPadding, kWhole>(params, strip, use, [&](int32_t ih) {
    if (ih >= strip.h) {
      element::Vector<Element, kPixels> results;
      results.round(r_acc[0]);
      if (params.x_vectors && strip.w + kPixels <= params.w.in) {
        results.store(g_pixels);
      } else if constexpr (!kWhole) {
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
          if (strip.w + p < params.w.in) results.store(p, g_pixels + p * params.x_stride[3]);
        }
      }
      g_pixels += params.x_stride[2];
    }
#pragma unroll
    for (int later = 0; later < kRows; ++later) {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) r_acc[later][p] = later + 1 < kRows ? r_acc[(later + 1) % kRows][p] : 0.0f;
    }
  });
}

template <typename Traits, int kPadding, bool kWhole>
__device__ __forceinline__ void depthwise_grad_weight(const DepthwiseParams& params, const PixelStrip& strip) {
  using Element = typename Traits::Element;
  constexpr int kKernel = Traits::kKernel, kPixels = Traits::kPixels, kRows = Traits::kRows;
  float r_acc[kKernel][kKernel] = {};
  const auto* g_pixels = static_cast<const Element*>(params.x) + strip.image * params.x_stride[0] +
                         strip.channel * params.x_stride[1] + strip.w * params.x_stride[3];
  auto load_pixels = [&](int32_t ih, element::Vector<Element, kPixels>& pixels) {
    if (ih >= strip.h_end) return;
    const Element* g_row = g_pixels + ih * params.x_stride[2];
    if (params.x_vectors && strip.w + kPixels <= params.w.in) {
      pixels.load(g_row);
    } else if constexpr (!kWhole) {
      pixels.load(g_row, params.x_stride[3], params.w.in - strip.w);
    }
  };
  element::Vector<Element, kPixels> r_pixels[kRows + 1] = {};  // rows ih, ih + 1, ..., and one in flight
  load_pixels(strip.h, r_pixels[kRows - 1]);
  load_pixels(strip.h + 1, r_pixels[kRows]);
  // Bit mask of a row's products whose pixel and column exist.
  uint32_t terms = 0;
#pragma unroll
  for (int term = 0; term < kPixels * kKernel; ++term) {
    const int32_t pixel = strip.w + term / kKernel, column = pixel * Traits::kStride - kPadding + term % kKernel;
    terms |= static_cast<uint32_t>(pixel < params.w.in && column >= 0 && column < params.w.out) << term;
  }
  auto use = [&](const auto& rows, int32_t ih, int later, const auto& r_row, int k_h) {
    if (ih + later < strip.h || ih + later >= strip.h_end) return;
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      const float pixel = r_pixels[later][p];
#pragma unroll
      for (int k_w = 0; k_w < kKernel; ++k_w) {
        const int i = p * Traits::kStride + k_w;
        if (!rows.always_has(i) && (terms >> (p * kKernel + k_w) & 1) == 0) continue;
        r_acc[k_h][k_w] = element::fused_multiply_add(pixel, r_row[i], r_acc[k_h][k_w]);
      }
    }
  };
  slide<Traits, kPadding, kWhole>(params, strip, use, [&](int32_t ih) {
#pragma unroll
    for (int later = 0; later < kRows; ++later) r_pixels[later] = r_pixels[later + 1];
    load_pixels(ih + kRows + 1, r_pixels[kRows]);
  });
  const int64_t slab = (int64_t{strip.image} * params.chunks + strip.chunk) * params.strips + strip.strip;
  float* g_slab = params.slabs + (slab * params.channels + strip.channel) * kKernel * kKernel;
#pragma unroll
  for (int k_h = 0; k_h < kKernel; ++k_h) {
#pragma unroll
    for (int k_w = 0; k_w < kKernel; ++k_w) {
      const float sum = ptx::warp_sum(kWhole && strip.w >= params.w.in ? 0.0f : r_acc[k_h][k_w]);
      if (strip.lane == 0) g_slab[k_h * kKernel + k_w] = sum;
    }
  }
}

template <typename Traits, int kPadding>
__device__ __forceinline__ void depthwise_gradient(const DepthwiseParams& params, const PixelStrip& strip) {
  const int32_t column = strip.w * Traits::kStride;
  const bool has_columns = column + Traits::kColumns <= params.w.out;
  // A lane without pixels may own columns that the previous lane needs.
  const bool whole = strip.w < params.w.in ? has_columns && strip.w + Traits::kPixels <= params.w.in
                                           : has_columns || column >= params.w.out;
  auto run = [&](auto all_whole) {
    if constexpr (Traits::kOfInput) {
      depthwise_grad_input<Traits, kPadding, all_whole()>(params, strip);
    } else {
      depthwise_grad_weight<Traits, kPadding, all_whole()>(params, strip);
    }
  };
  if (__all_sync(0xffffffffu, params.x_vectors && params.y_vectors && whole) != 0) {
    run(std::true_type{});
  } else {
    run(std::false_type{});
  }
}

// The planner only admits paddings up to kKept: a window starts kPadding columns before a lane's own.
template <typename Traits>
__global__ void __launch_bounds__(kDepthwiseThreads, 4)
    depthwise_kernel(const __grid_constant__ DepthwiseParams params) {
  const PixelStrip strip(params, Traits::kPixels);
  if (strip.number >= params.num_warps) return;
  auto run = [&](auto padding) {
    if constexpr (padding() <= Traits::kKept) depthwise_gradient<Traits, padding()>(params, strip);
  };
  switch (params.w.padding) {
    case 0: return run(std::integral_constant<int, 0>{});
    case 1: return run(std::integral_constant<int, 1>{});
    default: return run(std::integral_constant<int, 2>{});
  }
}

}  // namespace convt::depthwise
