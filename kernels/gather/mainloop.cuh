// Multiplies a stage in shared memory and accumulates in registers, in the order of class ieee: channels, then taps,
// ascending. Nonexistent terms are not multiplied.
#pragma once

#include "element/arithmetic.cuh"
#include "gather/layout.h"

namespace convt::gather {

// kCount elements in runs of at most four contiguous ones, with a stride of `run_step` elements between runs.
template <int kCount>
struct GatherRuns {
  static constexpr int kRun = kCount < 4 ? kCount : 4;

  __device__ __forceinline__ static void load(float (&r_values)[kCount], const float* s_values, int32_t run_step) {
#pragma unroll
    for (int i = 0; i < kCount; i += kRun) {
      const float* s_run = s_values + i / kRun * run_step;
      if constexpr (kRun == 4) {
        const float4 quad = *reinterpret_cast<const float4*>(s_run);
        r_values[i] = quad.x, r_values[i + 1] = quad.y, r_values[i + 2] = quad.z, r_values[i + 3] = quad.w;
      } else {
        static_assert(kRun == 2);
        const float2 pair = *reinterpret_cast<const float2*>(s_run);
        r_values[i] = pair.x, r_values[i + 1] = pair.y;
      }
    }
  }
};

// Results of a thread within the tile, as contiguous runs, so that the lanes of a warp read neighbouring vectors.
template <int kChannels, int kPositions>
struct GatherPlace {
  int32_t position;
  int32_t position_step;  // stride between runs
  int32_t channel;
  int32_t channel_step;

  __device__ __forceinline__ explicit GatherPlace(const GatherParams& params) {
    constexpr int kRunC = GatherRuns<kChannels>::kRun, kRunP = GatherRuns<kPositions>::kRun;
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
    const int32_t lanes_c = params.lanes_channels, lanes_p = 32 / lanes_c;
    // Of four lanes along channels, two are neighbouring lanes. The eight lanes of one shared-memory transaction thus
    // read fewer distinct vectors.
    const int32_t lane_c = lanes_c == 4 ? (lane & 1) | (lane >> 4) << 1 : lane % lanes_c;
    const int32_t lane_p = lanes_c == 4 ? lane >> 1 & 7 : lane / lanes_c;
    const int32_t warp_p = warp / params.warps_channels, warp_c = warp - warp_p * params.warps_channels;
    position = warp_p * lanes_p * kPositions + lane_p * kRunP;
    position_step = lanes_p * kRunP;
    channel = warp_c * lanes_c * kChannels + lane_c * kRunC;
    channel_step = lanes_c * kRunC;
  }
};

template <bool kInside, int kChannels, int kPositions>
__device__ __forceinline__ void multiply(const GatherParams& params, const GatherPlace<kChannels, kPositions>& place,
                                         int32_t num_ci, int32_t num_taps, const float* s_source, const float* s_weight,
                                         const uint32_t* s_bits, float (&r_acc)[kChannels][kPositions]) {
  constexpr int kRun = GatherRuns<kPositions>::kRun;
  constexpr int kUnroll = kChannels * kPositions > 32 ? 2 : kChannels * kPositions > 8 ? 4 : 8;
  const int32_t words = params.table_positions / 32;
#pragma unroll 1
  for (int32_t ci = 0; ci < num_ci; ++ci, s_source += params.source_pitch, s_weight += params.weight_channel_pitch) {
    const float* s_positions = s_source + place.position;
    const float* s_channels = s_weight + place.channel;
    const uint32_t* s_word = s_bits;
#pragma unroll kUnroll
    for (int32_t tap = 0; tap < num_taps; ++tap) {
      float r_source[kPositions], r_weight[kChannels];
      GatherRuns<kPositions>::load(r_source, s_positions, place.position_step);
      GatherRuns<kChannels>::load(r_weight, s_channels, place.channel_step);
      s_positions += params.block_positions, s_channels += params.weight_pitch;
      uint32_t bits[kPositions / kRun];
      if constexpr (!kInside) {
#pragma unroll
        for (int j = 0; j < kPositions / kRun; ++j) {
          const int32_t m = place.position + j * place.position_step;
          bits[j] = s_word[m / 32] >> m % 32;
        }
        s_word += words;
      }
#pragma unroll
      for (int j = 0; j < kPositions; ++j) {
        if (!kInside && (bits[j / kRun] >> j % kRun & 1) == 0) continue;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          r_acc[c][j] = element::fused_multiply_add(r_source[j], r_weight[c], r_acc[c][j]);
        }
      }
    }
  }
}

}  // namespace convt::gather
