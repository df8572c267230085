// Packs tap by tap, 16 bytes at a time if they belong to one vector.
#pragma once

#include "pack/weights_sm90a/places.cuh"

namespace convt::pack {

#ifdef CONVT_HAS_WGMMA

// A CTA packs one tap of one stage of one channel tile. Adjacent threads pack adjacent channels in 16-byte vectors.
template <typename Traits>
__device__ __forceinline__ void pack_tap(const Params& params, int32_t number) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kChannels;
  const Tap tap = find_tap(params, number % params.program.total_taps);
  number /= params.program.total_taps;
  const int32_t chunk = number % params.num_chunks;
  number /= params.num_chunks;
  const int32_t channel_tile = number % params.channel_tiles;
  const int32_t group = number / params.channel_tiles;
  const auto* g_tap = static_cast<const Element*>(params.w) + group * params.group_stride + tap.from;
  char* g_packed = static_cast<char*>(params.packed) +
                   (int64_t{group} * params.channel_tiles + channel_tile) * params.packed_tile_step + tap.to +
                   int64_t{chunk} * tap.stage_bytes;
  const int32_t planes = params.k_steps * 2, vectors = planes * params.block_n;
  if (params.k_vectors) {
    // Loads are coalesced, and all loads of a thread's batch are in flight at once.
    constexpr int kBatch = 4;
    for (int32_t first = threadIdx.x; first < vectors; first += kBatch * kPackThreads) {
      Element r[kBatch][kChannels];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int32_t vector = first + i * kPackThreads, column = vector / planes;
        const int32_t n = channel_tile * params.block_n + channel_of_column(column, params.interleaved);
        const int32_t k = (chunk * planes + vector % planes) * kChannels;
        const bool exists = vector < vectors && n < params.n_channels && k < params.k_channels;
        const uint4 words = exists ? __ldg(reinterpret_cast<const uint4*>(g_tap + k + n * params.n_stride)) : uint4{};
        memcpy(r[i], &words, 16);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int32_t vector = first + i * kPackThreads;
        if (vector >= vectors) continue;
        const int32_t place = place_of_vector(params, vector % planes, vector / planes);
        store_channels<Traits>(g_packed, place, vectors, r[i]);
      }
    }
    return;
  }
  if (params.n_vectors) {
    // Transposes kChannels x kChannels: 16 bytes of result channels for each channel of K.
    for (int32_t item = threadIdx.x; item < vectors / kChannels; item += kPackThreads) {
      const int32_t plane = item % planes, first = item / planes * kChannels;
      const int32_t n = channel_tile * params.block_n + first, k = (chunk * planes + plane) * kChannels;
      Element r[kChannels][kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const bool exists = n < params.n_channels && k + c < params.k_channels;
        const auto* g = reinterpret_cast<const uint4*>(g_tap + (k + c) * params.k_stride + n);
        const uint4 words = exists ? __ldg(g) : uint4{};
        memcpy(r[c], &words, 16);
      }
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        Element of_column[kChannels];
#pragma unroll
        for (int c = 0; c < kChannels; ++c) of_column[c] = r[c][i];
        const int32_t column = column_of_channel(first + i, params.interleaved);
        store_channels<Traits>(g_packed, place_of_vector(params, plane, column), vectors, of_column);
      }
    }
    return;
  }
  for (int32_t vector = threadIdx.x; vector < vectors; vector += kPackThreads) {
    const int32_t plane = vector / params.block_n, column = vector % params.block_n;
    const int32_t n = channel_tile * params.block_n + channel_of_column(column, params.interleaved);
    const int32_t k = (chunk * planes + plane) * kChannels;
    Element r[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      r[c] = n < params.n_channels && k + c < params.k_channels
                 ? g_tap[(k + c) * params.k_stride + channel_offset(params, n)]
                 : element::to_element<Element>(0.0f);
    }
    store_channels<Traits>(g_packed, place_of_vector(params, plane, column), vectors, r);
  }
}

#endif

}  // namespace convt::pack
