// Tensors as rows of NCHW, packed by a kernel of their own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "pack/rows.h"
#include "ptx/mma_sm80.cuh"

namespace convt::pack {

// A CTA packs some channels' neighbouring places. They pass through shared memory, so that neighbouring threads read
// neighbours of the source and write neighbours of the packed tensor.
template <typename Element>
__global__ void __launch_bounds__(kPackRowsThreads) pack_rows(const __grid_constant__ PackRowsParams params) {
#ifdef CONVT_HAS_MMA
  using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element)), kVectors = kPackRowsPlaces / kVector;
  constexpr int kPitch = kPackRowsPlaces + 4 / static_cast<int>(sizeof(Element));  // an odd number of words
  __shared__ Bits s_tile[kPackRowsChannels * kPitch];
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t place_tile, channel_tile;
  const int32_t image =
      params.by_channel_tiles(params.by_place_tiles(static_cast<int32_t>(blockIdx.x), &place_tile), &channel_tile);
  const int32_t first_channel = channel_tile * kPackRowsChannels, first_place = place_tile * kPackRowsPlaces;
  const auto* g_image = static_cast<const Bits*>(params.source) + image * params.stride[0];
  const auto load = [&](int32_t c, int32_t p) {
    int32_t column;
    const int32_t channel = first_channel + c, place = first_place + p;
    const int32_t row = params.by_row(place, &column);
    const bool exists = channel < params.channels && place < params.places && column < params.columns;
    s_tile[c * kPitch + p] =
        exists ? g_image[channel * params.stride[1] + row * params.stride[2] + column * params.stride[3]] : Bits{0};
  };
  if (params.channels_inner) {
#pragma unroll
    for (int32_t i = 0; i < kPackRowsPlaces; i += kPackRowsThreads / kPackRowsChannels) {
      load(thread % kPackRowsChannels, i + thread / kPackRowsChannels);
    }
  } else {
#pragma unroll
    for (int32_t i = 0; i < kPackRowsChannels; i += kPackRowsThreads / kPackRowsPlaces) {
      load(i + thread / kPackRowsPlaces, thread % kPackRowsPlaces);
    }
  }
  __syncthreads();
#pragma unroll
  for (int32_t i = 0; i < kPackRowsChannels; i += kPackRowsThreads / kVectors) {
    const int32_t c = i + thread / kVectors, p = thread % kVectors * kVector;
    if (first_channel + c >= params.channels || first_place + p >= params.places) continue;
    alignas(16) Bits elements[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) elements[j] = s_tile[c * kPitch + p + j];
    uint4 words;
    memcpy(&words, elements, sizeof(words));
    const int64_t channel = int64_t{image} * params.channels + first_channel + c;
    *reinterpret_cast<uint4*>(static_cast<Bits*>(params.packed) + channel * params.places + first_place + p) = words;
  }
#endif
}

}  // namespace convt::pack
