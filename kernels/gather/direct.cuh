// Small layers. Forward pass, and gradient of the input as the forward pass of the adjoint problem: a thread computes
// one result straight from global memory. Gradient of the weight: the threads of a CTA share the pixels of a few
// neighbouring taps. kernels/ORDER.md defines the order of each sum. There are no stages, no slabs and little code,
// because latencies dominate a launch of five microseconds: the launch, cold instructions, two or three dependent
// loads. Launched by gather/launch.cpp.
#pragma once

#include "element/arithmetic.cuh"
#include "gather/layout.h"
#include "ptx/warp_reduce.cuh"

namespace convt::gather {

// Iterates over the terms of a result in the order of its sum: channels, then tap rows, then tap columns.
class DirectTerms {
 public:
  int32_t source;  // offset in elements from the first element of the group's first channel
  int32_t weight;  // offset in elements from the first channel's first tap of the phases

  __device__ __forceinline__ DirectTerms(const DirectParams& params, const Phase& h, const Phase& w, int32_t position_h,
                                         int32_t position_w)
      : weight(0),
        taps_h_(h.num_taps),
        taps_w_(w.num_taps),
        first_row_(position_h * params.row_step + h.first_shift),
        first_column_(position_w * params.column_step + w.first_shift),
        row_(first_row_),
        column_(first_column_),
        row_step_(h.shift_step),
        column_step_(w.shift_step) {
    const auto channel = static_cast<int32_t>(params.source_stride[1]);
    const auto row = static_cast<int32_t>(params.source_stride[2]);
    const auto column = static_cast<int32_t>(params.source_stride[3]);
    source = first_row_ * row + first_column_ * column;
    source_w_ = -column_step_ * column;
    source_h_ = -row_step_ * row - taps_w_ * source_w_;
    source_c_ = channel + taps_h_ * row_step_ * row;
    weight_w_ = w.tap_step * params.weight_stride[3];
    weight_h_ = h.tap_step * params.weight_stride[2] - taps_w_ * weight_w_;
    weight_c_ = params.weight_stride[0] - taps_h_ * h.tap_step * params.weight_stride[2];
  }

  __device__ __forceinline__ bool is_inside(const DirectParams& params) const {
    return static_cast<uint32_t>(row_) < static_cast<uint32_t>(params.rows) &&
           static_cast<uint32_t>(column_) < static_cast<uint32_t>(params.columns);
  }

  __device__ __forceinline__ void next() {
    column_ -= column_step_, source += source_w_, weight += weight_w_;
    if (++tap_w_ < taps_w_) return;
    tap_w_ = 0, column_ = first_column_;
    row_ -= row_step_, source += source_h_, weight += weight_h_;
    if (++tap_h_ < taps_h_) return;
    tap_h_ = 0, row_ = first_row_;
    source += source_c_, weight += weight_c_;
  }

 private:
  int32_t taps_h_, taps_w_;
  int32_t first_row_, first_column_;
  int32_t row_, column_;
  int32_t row_step_, column_step_;
  int32_t tap_h_ = 0, tap_w_ = 0;
  // Offset increments between terms: within a tap row, at the end of a tap row, at the end of a channel.
  int32_t source_w_, source_h_, source_c_;
  int32_t weight_w_, weight_h_, weight_c_;
};

template <typename Element>
__global__ void __launch_bounds__(kDirectThreads) direct_kernel(const __grid_constant__ DirectParams params) {
  const auto number = static_cast<int32_t>(blockIdx.x * kDirectThreads + threadIdx.x);
  if (number >= params.results) return;
  int32_t digits[3];
  int32_t image = number;
#pragma unroll
  for (int i = 0; i < 3; ++i) image = params.by_digits[i](image, &digits[i]);
  const int32_t channel = params.channels_last ? digits[0] : digits[2];
  const int32_t column = params.channels_last ? digits[1] : digits[0];
  const int32_t row = params.channels_last ? digits[2] : digits[1];
  int32_t phase_h, phase_w, channel_of_group;
  const int32_t position_h = params.by_phases_h(row, &phase_h), position_w = params.by_phases_w(column, &phase_w);
  const int32_t group = params.by_group_co(channel, &channel_of_group);
  const Phase h = params.phases_h[phase_h], w = params.phases_w[phase_w];
  const auto* g_source = static_cast<const Element*>(params.source) + image * params.source_stride[0] +
                         int64_t{group} * params.group_ci * params.source_stride[1];
  const auto* g_weight = static_cast<const Element*>(params.weight) + group * params.weight_group_stride +
                         (channel_of_group * params.weight_stride[1] + h.first_tap * params.weight_stride[2] +
                          w.first_tap * params.weight_stride[3]);
  // Without a bias, add -0: it leaves every sum unchanged.
  const float bias =
      params.bias == nullptr ? -0.0f : element::to_accumulator(static_cast<const Element*>(params.bias)[channel]);
  const int32_t terms = h.num_taps * w.num_taps * params.group_ci;
  DirectTerms term(params, h, w, position_h, position_w);
  float sum = 0;
#pragma unroll 1
  for (int32_t begin = 0; begin < terms; begin += kDirectBatch) {
    Element source[kDirectBatch], weight[kDirectBatch];
    bool exists[kDirectBatch];
#pragma unroll
    for (int i = 0; i < kDirectBatch; ++i, term.next()) {
      exists[i] = begin + i < terms && term.is_inside(params);
      if (exists[i]) source[i] = g_source[term.source], weight[i] = g_weight[term.weight];
    }
#pragma unroll
    for (int i = 0; i < kDirectBatch; ++i) {
      if (!exists[i]) continue;
      sum = element::fused_multiply_add(element::to_accumulator(source[i]), element::to_accumulator(weight[i]), sum);
    }
  }
  static_cast<Element*>(params.result)[image * params.result_stride[0] + channel * params.result_stride[1] +
                                       row * params.result_stride[2] + column * params.result_stride[3]] =
      element::to_element<Element>(element::add(sum, bias));
}

// Accumulates a thread's pixels: every blockDim.x-th. All pixels of a batch are read before the first is multiplied.
template <typename Element>
__device__ __forceinline__ void add_pixels(const DirectWeightParams& params, const Element* g_x, const Element* g_gy,
                                           int32_t kh, int32_t kw, float (&r_acc)[kDirectWeightTaps]) {
  const Axis &h = params.h, &w = params.w;
  const int32_t first_row = kh * h.dilation - h.padding, first_column = kw * w.dilation - w.padding;
  const int32_t taps = w.kernel - kw;  // existing taps; may exceed the accumulators
  const auto threads = static_cast<int32_t>(blockDim.x);
#pragma unroll 1
  for (int32_t begin = threadIdx.x; begin < params.pixels; begin += kDirectWeightBatch * threads) {
    Element x[kDirectWeightBatch], gy[kDirectWeightBatch][kDirectWeightTaps];
    bool exists[kDirectWeightBatch][kDirectWeightTaps];
#pragma unroll
    for (int i = 0; i < kDirectWeightBatch; ++i) {
      const int32_t pixel = begin + i * threads;
      int32_t iw, ih;
      const int32_t image = params.by_rows(params.by_columns(pixel, &iw), &ih);
      const int32_t oh = ih * h.stride + first_row, ow = iw * w.stride + first_column;
      const bool row_exists = pixel < params.pixels && static_cast<uint32_t>(oh) < static_cast<uint32_t>(h.out);
      const Element* g_taps =
          g_gy + (image * params.gy_stride[0] + oh * params.gy_stride[2] + ow * params.gy_stride[3]);
      if (row_exists) {
        x[i] = g_x[image * params.x_stride[0] + ih * params.x_stride[2] + iw * params.x_stride[3]];
      }
#pragma unroll
      for (int t = 0; t < kDirectWeightTaps; ++t) {
        const int32_t column = ow + t * w.dilation;
        exists[i][t] = row_exists && t < taps && static_cast<uint32_t>(column) < static_cast<uint32_t>(w.out);
        if (exists[i][t]) gy[i][t] = g_taps[t * w.dilation * params.gy_stride[3]];
      }
    }
#pragma unroll
    for (int i = 0; i < kDirectWeightBatch; ++i) {
#pragma unroll
      for (int t = 0; t < kDirectWeightTaps; ++t) {
        if (!exists[i][t]) continue;
        r_acc[t] =
            element::fused_multiply_add(element::to_accumulator(x[i]), element::to_accumulator(gy[i][t]), r_acc[t]);
      }
    }
  }
}

template <typename Element>
__global__ void __launch_bounds__(kMostDirectWeightThreads)
    direct_weight_kernel(const __grid_constant__ DirectWeightParams params) {
  __shared__ float s_sums[kDirectWeightTaps][kMostDirectWeightThreads / 32];
  int32_t run, kh, co, ci;
  const int32_t row = params.by_runs(static_cast<int32_t>(blockIdx.x), &run);
  const int32_t channel = params.by_group_co(params.by_kernel_h(row, &kh), &co);  // input channel
  const int32_t group = params.by_group_ci(channel, &ci);
  const int32_t kw = run * kDirectWeightTaps;
  const auto* g_x = static_cast<const Element*>(params.x) + channel * params.x_stride[1];
  const auto* g_gy =
      static_cast<const Element*>(params.gy) + (group * params.by_group_co.value + co) * params.gy_stride[1];
  float r_acc[kDirectWeightTaps] = {};
  add_pixels(params, g_x, g_gy, kh, kw, r_acc);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kDirectWeightTaps; ++t) {
    const float sum = ptx::warp_sum(r_acc[t]);
    if (lane == 0) s_sums[t][threadIdx.x / 32] = sum;
  }
  __syncthreads();  // all warps' sums are visible
  const auto tap = static_cast<int32_t>(threadIdx.x);
  if (tap >= kDirectWeightTaps || kw + tap >= params.w.kernel) return;
  float sum = s_sums[tap][0];
  for (int32_t warp = 1; warp < static_cast<int32_t>(blockDim.x) / 32; ++warp)
    sum = element::add(sum, s_sums[tap][warp]);
  static_cast<Element*>(params.weight)[channel * params.weight_stride[0] + co * params.weight_stride[1] +
                                       kh * params.weight_stride[2] + (kw + tap) * params.weight_stride[3]] =
      element::to_element<Element>(sum);
}

}  // namespace convt::gather
