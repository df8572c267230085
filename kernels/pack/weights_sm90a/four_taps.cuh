// Packs 2 x 2 kernels with contiguous taps, all four taps at a time.
#pragma once

#include "pack/weights_sm90a/places.cuh"

namespace convt::pack {

#ifdef CONVT_HAS_WGMMA

// A thread packs 16 bytes of every tap. Adjacent threads hold both planes of a step of K, then columns, so that a warp
// reads contiguous runs in either order of channels.
template <typename Traits>
__device__ __forceinline__ void pack_four_taps(const Params& params, int32_t number, Tap* s_taps) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kChannels, kTaps = 4;
  using Taps = std::conditional_t<sizeof(Element) == 4, uint4, uint2>;  // taps of a channel and column
  if (threadIdx.x < kTaps) {
    const Tap tap = find_tap(params, static_cast<int32_t>(threadIdx.x));
    s_taps[tap.from] = tap;
  }
  const int32_t planes = params.k_steps * 2, vectors = planes * params.block_n;
  int32_t item = number * kPackThreads + static_cast<int32_t>(threadIdx.x);
  const int32_t half = item % 2, column = item / 2 % params.block_n;
  item /= 2 * params.block_n;
  const int32_t plane = item % params.k_steps * 2 + half;
  item /= params.k_steps;
  const int32_t chunk = item % params.num_chunks;
  item /= params.num_chunks;
  const int32_t channel_tile = item % params.channel_tiles, group = item / params.channel_tiles;
  const int32_t n = channel_tile * params.block_n + channel_of_column(column, params.interleaved);
  const int32_t k = (chunk * planes + plane) * kChannels;
  const auto* g_first = static_cast<const Element*>(params.w) + group * params.group_stride + n * params.n_stride;
  Element r[kChannels][kTaps];
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const bool exists = group < params.groups && n < params.n_channels && k + c < params.k_channels;
    const Taps taps = exists ? __ldg(reinterpret_cast<const Taps*>(g_first + (k + c) * params.k_stride)) : Taps{};
    memcpy(r[c], &taps, sizeof(taps));
  }
  __syncthreads();  // s_taps is written
  if (group >= params.groups) return;
  char* g_tile = static_cast<char*>(params.packed) +
                 (int64_t{group} * params.channel_tiles + channel_tile) * params.packed_tile_step;
  const int32_t vector = place_of_vector(params, plane, column);
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    Element channels[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) channels[c] = r[c][t];
    store_channels<Traits>(g_tile + s_taps[t].to + int64_t{chunk} * s_taps[t].stage_bytes, vector, vectors, channels);
  }
}

#endif

}  // namespace convt::pack
