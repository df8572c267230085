// Weights -> the layout that the Hopper engine's matrix descriptors read: for each step of K two planes
// [result channel][16 bytes], and everything that a tile's stage needs in one contiguous piece. Channels beyond the
// weight's are zero. float32 becomes TF32, rounded to nearest, or for tf32x3 a high and a low part.
#pragma once

#include "pack/params.h"
#include "ptx/mbarrier_sm90.cuh"
#include "wgmma_sm90a/traits.cuh"

namespace convt::pack {

// A matrix product leaves columns 8 * j + 2 * q and the next of them in thread q of four. With their channels in this
// order the pairs of `interleaved` neighbouring blocks j are neighbouring channels.
__device__ __forceinline__ int32_t channel_of_column(int32_t column, int32_t interleaved) {
  const int32_t block = column / 8 % interleaved, quad = column % 8 / 2;
  return column / (8 * interleaved) * (8 * interleaved) + (quad * interleaved + block) * 2 + column % 2;
}

// A block packs one tap of one stage of one channel tile: 16-byte vectors, neighbouring threads neighbouring channels.
template <typename Traits>
__device__ __forceinline__ void pack_taps(const Params& params, int32_t number) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kChannels;
  const int32_t tap = number % params.program.total_taps;
  number /= params.program.total_taps;
  const int32_t chunk = number % params.num_chunks;
  number /= params.num_chunks;
  const int32_t channel_tile = number % params.channel_tiles;
  const int32_t group = number / params.channel_tiles;

  int32_t phase_h = 0;
  while (phase_h + 1 < params.program.phases_h && tap >= params.program.taps_before[phase_h + 1]) ++phase_h;
  const int32_t phase_tap = tap - params.program.taps_before[phase_h];
  // The run that holds the tap: the last one, of this H phase, that begins at or before it and is not empty.
  const bool by_phase = params.program.phases_h * params.program.phases_w > 1;
  int32_t index = by_phase ? phase_h * params.program.phases_w : 0;
  while (phase_tap >=
         params.program.runs[index].first_tap + params.program.runs[index].num_h * params.program.runs[index].num_w) {
    ++index;
  }
  const TapRun& run = params.program.runs[index];
  const int32_t tap_of_run = phase_tap - run.first_tap;
  const int32_t kh = run.kh + tap_of_run / run.num_w * run.kh_step;
  const int32_t kw = run.kw + tap_of_run % run.num_w * run.kw_step;

  const auto* g_tap = static_cast<const Element*>(params.w) + group * params.group_stride + kh * params.kh_stride +
                      kw * params.kw_stride;
  char* g_packed = static_cast<char*>(params.packed) +
                   (int64_t{group} * params.channel_tiles + channel_tile) * params.packed_tile_step +
                   params.packed_phase_begin[phase_h] +
                   (int64_t{chunk} * params.program.num_taps[phase_h] + phase_tap) * params.tap_bytes;
  const int32_t vectors = params.k_steps * 2 * params.block_n;
  for (int32_t vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
    const int32_t plane = vector / params.block_n;
    const int32_t n = channel_tile * params.block_n + channel_of_column(vector % params.block_n, params.interleaved);
    const int32_t k = (chunk * params.k_steps * 2 + plane) * kChannels;
    Element r[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      r[c] = n < params.n_channels && k + c < params.k_channels ? g_tap[(k + c) * params.k_stride + n * params.n_stride]
                                                                : wgmma_sm90a::to_element<Element>(0.0f);
    }
    if constexpr (Traits::kFloat32) {
      float high[4], low[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        high[c] = ptx::round_tf32(r[c]);
        low[c] = wgmma_sm90a::low_part(r[c], high[c]);
      }
      *reinterpret_cast<float4*>(g_packed + vector * 16) = float4{high[0], high[1], high[2], high[3]};
      if constexpr (Traits::kSplit) {
        *reinterpret_cast<float4*>(g_packed + (vectors + vector) * 16) = float4{low[0], low[1], low[2], low[3]};
      }
    } else {
      uint4 words;
      memcpy(&words, r, 16);
      *reinterpret_cast<uint4*>(g_packed + vector * 16) = words;
    }
  }
#endif
}

template <typename Traits>
__global__ void pack_weights(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA  // launched where its reader runs; older targets cannot round to TF32
  ptx::let_next_kernel_begin();
  pack_taps<Traits>(params, static_cast<int32_t>(blockIdx.x));
#endif
}

}  // namespace convt::pack
