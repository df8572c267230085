// The gradient of the weight of small layers: no stage, no slab and one launch, because one that takes five
// microseconds is made of latencies. A CTA's threads share the pixels of a few neighbouring taps (docs/numerics.md
// gives the order of the sum). Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "direct/weight_params.h"
#include "element/arithmetic.cuh"
#include "ptx/warp_reduce.cuh"

namespace convt::direct {

// A thread's pixels: every blockDim.x-th. Those of a batch are all read before the first is multiplied.
template <typename Element>
__device__ __forceinline__ void add_pixels(const DirectWeightParams& params, const Element* g_x, const Element* g_gy,
                                           int32_t kh, int32_t kw, float (&r_sums)[kDirectWeightTaps]) {
  const Axis &h = params.h, &w = params.w;
  const int32_t first_row = kh * h.dilation - h.padding, first_column = kw * w.dilation - w.padding;
  const int32_t taps = w.kernel - kw;  // that exist, perhaps more than there are sums
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
        r_sums[t] =
            element::fused_multiply_add(element::to_accumulator(x[i]), element::to_accumulator(gy[i][t]), r_sums[t]);
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
  const int32_t channel = params.by_group_co(params.by_kernel_h(row, &kh), &co);  // of the input
  const int32_t group = params.by_group_ci(channel, &ci);
  const int32_t kw = run * kDirectWeightTaps;
  const auto* g_x = static_cast<const Element*>(params.x) + channel * params.x_stride[1];
  const auto* g_gy =
      static_cast<const Element*>(params.gy) + (group * params.by_group_co.value + co) * params.gy_stride[1];
  float r_sums[kDirectWeightTaps] = {};
  add_pixels(params, g_x, g_gy, kh, kw, r_sums);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kDirectWeightTaps; ++t) {
    const float sum = ptx::warp_sum(r_sums[t]);
    if (lane == 0) s_sums[t][threadIdx.x / 32] = sum;
  }
  __syncthreads();  // every warp's sums are there
  const auto tap = static_cast<int32_t>(threadIdx.x);
  if (tap >= kDirectWeightTaps || kw + tap >= params.w.kernel) return;
  float sum = s_sums[tap][0];
  for (int32_t warp = 1; warp < static_cast<int32_t>(blockDim.x) / 32; ++warp)
    sum = element::add(sum, s_sums[tap][warp]);
  static_cast<Element*>(params.weight)[channel * params.weight_stride[0] + co * params.weight_stride[1] +
                                       kh * params.weight_stride[2] + (kw + tap) * params.weight_stride[3]] =
      element::to_element<Element>(sum);
}

}  // namespace convt::direct
