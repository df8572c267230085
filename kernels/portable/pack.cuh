// Operands as the portable engine reads them: tensors as pixels, weights with each result channel's K contiguous.
// float32 is rounded to TF32 on the way.
#pragma once

#include <cstdint>

#include "element/arithmetic.cuh"
#include "portable/pixels.h"
#include "ptx/mma_sm80.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// Bits of an element, which are moved and not computed with.
template <typename Element>
using Bits = std::conditional_t<sizeof(Element) == 4, uint32_t, uint16_t>;

template <typename Element>
__device__ __forceinline__ Bits<Element> operand_bits(const Element* g_element) {
  if constexpr (sizeof(Element) == 4) {
    return ptx::nearest_tf32(*g_element);
  } else {
    return *reinterpret_cast<const uint16_t*>(g_element);
  }
}

#endif

// A CTA packs a few vectors of some neighbouring pixels. They pass through shared memory, so that neighbouring threads
// read neighbours of the source and write neighbours of the packed tensor.
template <typename Element>
__global__ void __launch_bounds__(kPortablePackThreads) pack_pixels(const __grid_constant__ PackPixelsParams params) {
#ifdef CONVT_HAS_MMA
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element)), kChannels = kPortablePackVectors * kVector;
  constexpr int kPitch = kPortablePackPixels + 4 / static_cast<int>(sizeof(Element));  // an odd number of words
  extern __shared__ __align__(128) unsigned char s_bytes[];
  auto* s_tile = reinterpret_cast<Bits<Element>*>(s_bytes);
  static_assert(kChannels * kPitch * sizeof(Element) <= kPortablePackBytes);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t vector_tile;
  const int32_t first_pixel =
      params.by_vector_tiles(static_cast<int32_t>(blockIdx.x), &vector_tile) * kPortablePackPixels;
  const auto* g_source = static_cast<const Element*>(params.source);
  // Where a pixel, or a channel of all groups, begins in the source; -1 where there is none.
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
    s_tile[c * kPitch + p] = exists ? operand_bits(g_source + channel + pixel) : Bits<Element>{0};
  };
  if (params.channels_inner) {
    const int32_t c = thread % kChannels;
    const int64_t channel = channel_begin(c);
#pragma unroll 4
    for (int32_t p = thread / kChannels; p < kPortablePackPixels; p += kPortablePackThreads / kChannels) {
      load(c, channel, p, pixel_begin(p));
    }
  } else {
    const int32_t p = thread % kPortablePackPixels;
    const int64_t pixel = pixel_begin(p);
#pragma unroll 4
    for (int32_t c = thread / kPortablePackPixels; c < kChannels; c += kPortablePackThreads / kPortablePackPixels) {
      load(c, channel_begin(c), p, pixel);
    }
  }
  __syncthreads();
  for (int32_t i = thread; i < kPortablePackVectors * kPortablePackPixels; i += kPortablePackThreads) {
    const int32_t vector = i % kPortablePackVectors, p = i / kPortablePackVectors;
    const int32_t packed_vector = vector_tile * kPortablePackVectors + vector;
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

// A thread packs a vector: [group][phase][result channel][tap row, tap, vector of channels], zeros behind the last.
template <typename Element>
__global__ void __launch_bounds__(kPortablePackThreads) pack_weights(const __grid_constant__ PackWeightsParams params) {
#ifdef CONVT_HAS_MMA
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  const int64_t number = int64_t{blockIdx.x} * kPortablePackThreads + threadIdx.x;
  if (number >= params.num_vectors) return;
  Digits digits{static_cast<int32_t>(number)};
  const int32_t vector = digits.next(params.slot_vectors), n = digits.next(params.n_channels);
  const int32_t phase_w = digits.next(params.phases_w), phase_h = digits.next(params.phases_h), group = digits.rest;
  const Phase h = make_phase(params.h, phase_h), w = make_phase(params.w, phase_w);
  const int32_t tap = vector / params.channel_vectors, first = vector % params.channel_vectors * kVector;
  const int32_t tap_h = w.num_taps > 0 ? tap / w.num_taps : h.num_taps, tap_w = tap - tap_h * w.num_taps;
  const int32_t kh = h.first_tap + tap_h * h.tap_step, kw = w.first_tap + tap_w * w.tap_step;
  const Element* g_weight = static_cast<const Element*>(params.weight) + group * params.group_stride +
                            n * params.stride[1] + kh * params.stride[2] + kw * params.stride[3];
  alignas(16) Bits<Element> elements[kVector];
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const bool exists = tap_h < h.num_taps && first + j < params.k_channels;
    elements[j] = exists ? operand_bits(g_weight + (first + j) * params.stride[0]) : Bits<Element>{0};
  }
  uint4 words;
  memcpy(&words, elements, sizeof(words));
  static_cast<uint4*>(params.packed)[number] = words;
#endif
}

}  // namespace convt::portable
