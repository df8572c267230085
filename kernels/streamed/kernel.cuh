// Layers of few outputs or few channels, forward and gradient of the input, without stages. A thread reads the source
// of its positions from global memory (neighbouring positions and other taps hit in L1) and the CTA's weights from
// shared memory. kernels/ORDER.md defines the order of each sum. Launched by streamed/launch.cpp.
#pragma once

#include "element/arithmetic.cuh"
#include "streamed/layout.h"
#include "streamed/mainloop.cuh"
#include "streamed/prologue.cuh"

namespace convt::streamed {

template <int kChannels>
__device__ __forceinline__ void store_position(const StreamedParams& params, int32_t channel, int32_t num_channels,
                                               float* g_position, const float (&r_acc)[kChannels]) {
  const int64_t step = params.result_stride[1];
  if constexpr (kChannels % 4 == 0) {
    const bool on_vectors = params.result_on_vectors && step == 1 && num_channels >= kChannels &&
                            (g_position - params.result + channel) % 4 == 0;
    if (on_vectors) {
#pragma unroll
      for (int c = 0; c < kChannels; c += 4) {
        *reinterpret_cast<float4*>(g_position + channel + c) =
            make_float4(r_acc[c], r_acc[c + 1], r_acc[c + 2], r_acc[c + 3]);
      }
      return;
    }
  }
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    if (c < num_channels) g_position[(channel + c) * step] = r_acc[c];
  }
}

template <int kTaps, bool kInside, int kChannels, int kPositions>
__device__ __forceinline__ void multiply_terms(const StreamedParams& params, const StreamedTerms& terms,
                                               const StreamedPosition (&positions)[kPositions], const float* s_weights,
                                               float (&r_acc)[kPositions][kChannels]) {
  if constexpr (kTaps == 0) {
    multiply_elements<kInside>(params, terms, positions, s_weights, r_acc);
  } else {
    multiply_vectors<kTaps, kInside>(params, terms, positions, s_weights, r_acc);
  }
}

// kTaps: 0 if the source is read element by element; otherwise it is read four channels at a time, and kTaps is the
// maximum number of taps per phase.
template <int kChannels, int kPositions, int kTaps>
__global__ void __launch_bounds__(kMaxStreamedThreads, min_streamed_blocks(kChannels* kPositions, kTaps))
    streamed_kernel(const __grid_constant__ StreamedParams params) {
  extern __shared__ __align__(16) unsigned char s_bytes[];
  const ResultTile tile = result_tile(params);
  const Phase h = params.phases_h[tile.phase_h], w = params.phases_w[tile.phase_w];
  const StreamedTerms terms(params, h, w, s_bytes);
  terms.fill(params, tile);

  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t warp_p = warp / params.warps_channels, warp_c = warp - warp_p * params.warps_channels;
  const float* g_source = params.source + int64_t{tile.group} * params.group_ci * params.source_stride[1];
  const StreamedOrder order(params, h, w);
  StreamedPosition positions[kPositions];
  bool inside = true;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
    const int32_t number = tile.position + (warp_p * kPositions + p) * 32 + static_cast<int32_t>(threadIdx.x) % 32;
    inside &= positions[p].find(params, tile, h, w, order, number, g_source);
  }
  inside = __all_sync(0xffffffffu, inside) != 0;
  __syncthreads();  // terms and weights are complete

  float r_acc[kPositions][kChannels] = {};
  const float* s_weights = terms.s_weights + warp_c * kChannels;
  if (inside) {
    multiply_terms<kTaps, true>(params, terms, positions, s_weights, r_acc);
  } else {
    multiply_terms<kTaps, false>(params, terms, positions, s_weights, r_acc);
  }

  const int32_t of_group = tile.channel + warp_c * kChannels, num_channels = params.group_co - of_group;
  const int32_t channel = tile.group * params.group_co + of_group;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      // Without a bias, add -0: it leaves every sum unchanged.
      const float bias = params.bias != nullptr && c < num_channels ? params.bias[channel + c] : -0.0f;
      r_acc[p][c] = element::add(r_acc[p][c], bias);
    }
    if (positions[p].result < 0) continue;
    store_position(params, channel, num_channels, params.result + positions[p].result, r_acc[p]);
  }
}

}  // namespace convt::streamed
