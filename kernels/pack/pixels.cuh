// Kernel that packs tensors as pixels.
#pragma once

#include <cstdint>

#include "element/arithmetic.cuh"
#include "pack/pixels.h"
#include "ptx/mma_sm80.cuh"

namespace convt::pack {

#ifdef CONVT_HAS_MMA

// Bits of an element. Elements are only moved or rounded.
template <typename Element>
using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;

template <typename Element>
__device__ __forceinline__ Bits<Element> operand_bits(const Element* g_element, bool rounds) {
  if constexpr (sizeof(Element) == 4) {
    return rounds ? ptx::nearest_tf32(*g_element) : __float_as_uint(*g_element);
  } else {
    return *reinterpret_cast<const uint16_t*>(g_element);
  }
}

#endif

// A CTA packs a few vectors of some adjacent pixels. They pass through shared memory, so that loads and stores are both
// coalesced.
template <typename Element>
__global__ void __launch_bounds__(kPackTileThreads) pack_pixels(const __grid_constant__ PackPixelsParams params) {
#ifdef CONVT_HAS_MMA
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element)), kChannels = kPackTileVectors * kVector;
  constexpr int kPitch = kPackTilePixels + 4 / static_cast<int>(sizeof(Element));  // an odd number of words
  extern __shared__ __align__(128) unsigned char s_bytes[];
  auto* s_tile = reinterpret_cast<Bits<Element>*>(s_bytes);
  static_assert(kChannels * kPitch * sizeof(Element) <= kPackTileBytes);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t vector_tile;
  const int32_t first_pixel = params.by_vector_tiles(static_cast<int32_t>(blockIdx.x), &vector_tile) * kPackTilePixels;
  const auto* g_source = static_cast<const Element*>(params.source);
  // Element offset of a pixel, or of a channel of all groups, in the source; -1 if it does not exist.
  const auto pixel_begin = [&](int32_t p) -> int64_t {
    int32_t row, column;
    const int32_t pixel = first_pixel + p;
    const int32_t image = params.by_rows(params.by_columns(pixel, &column), &row);
    const int64_t begin = image * params.stride[0] + row * params.stride[2] + column * params.stride[3];
    return pixel < params.num_pixels ? begin : -1;
  };
  const auto channel_begin = [&](int32_t c) -> int64_t {
    int32_t channel;
    const int32_t packed_channel = vector_tile * kChannels + c;
    const int32_t group = params.by_group(packed_channel, &channel);
    const bool exists = packed_channel < params.all_vectors * kVector && channel < params.channels;
    return exists ? (int64_t{group} * params.channels + channel) * params.stride[1] : -1;
  };
  const auto load = [&](int32_t c, int64_t channel, int32_t p, int64_t pixel) {
    const bool exists = channel >= 0 && pixel >= 0;
    s_tile[c * kPitch + p] = exists ? operand_bits(g_source + channel + pixel, params.rounds) : Bits<Element>{0};
  };
  if (params.channels_inner) {
    const int32_t c = thread % kChannels;
    const int64_t channel = channel_begin(c);
#pragma unroll 4
    for (int32_t p = thread / kChannels; p < kPackTilePixels; p += kPackTileThreads / kChannels) {
      load(c, channel, p, pixel_begin(p));
    }
  } else {
    const int32_t p = thread % kPackTilePixels;
    const int64_t pixel = pixel_begin(p);
#pragma unroll 4
    for (int32_t c = thread / kPackTilePixels; c < kChannels; c += kPackTileThreads / kPackTilePixels) {
      load(c, channel_begin(c), p, pixel);
    }
  }
  __syncthreads();
  for (int32_t i = thread; i < kPackTileVectors * kPackTilePixels; i += kPackTileThreads) {
    const int32_t vector = i % kPackTileVectors, p = i / kPackTileVectors;
    const int32_t packed_vector = vector_tile * kPackTileVectors + vector;
    if (first_pixel + p >= params.num_pixels || packed_vector >= params.all_vectors) continue;
    alignas(16) Bits<Element> elements[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) elements[j] = s_tile[(vector * kVector + j) * kPitch + p];
    uint4 words;
    memcpy(&words, elements, sizeof(words));
    static_cast<uint4*>(params.packed)[int64_t{first_pixel + p} * params.all_vectors + packed_vector] = words;
  }
#endif
}

}  // namespace convt::pack
