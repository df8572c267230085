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

// To [group][phase][result channel][tap row, tap, vector of channels]. Vectors behind a phase's last are left as they
// are. The weight passes through shared memory as above: threads read it in the order of memory.
template <typename Element>
__global__ void __launch_bounds__(kPortablePackThreads) pack_weights(const __grid_constant__ PackWeightsParams params) {
#ifdef CONVT_HAS_MMA
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element)), kChannels = kPortablePackVectors * kVector;
  constexpr int kPitch = kPortablePackPixels + 4 / static_cast<int>(sizeof(Element));
  extern __shared__ __align__(128) unsigned char s_bytes[];
  auto* s_tile = reinterpret_cast<Bits<Element>*>(s_bytes);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t k_tile, n_tile, tap_tile;
  const int32_t group = params.by_tap_tiles(
      params.by_n_tiles(params.by_k_tiles(static_cast<int32_t>(blockIdx.x), &k_tile), &n_tile), &tap_tile);
  const int32_t first_n = n_tile * params.by_n.value, first_tap = tap_tile * params.by_taps.value;
  const int32_t taps = params.h.kernel * params.w.kernel, columns = params.by_n.value * params.by_taps.value;
  const Element* g_weight = static_cast<const Element*>(params.weight) + group * params.group_stride;
#pragma unroll 4
  for (int32_t i = thread; i < kChannels * columns; i += kPortablePackThreads) {
    int32_t k, n, tap, rest, kw;
    if (params.taps_inner) {
      rest = params.by_taps(i, &tap);
      if (params.k_outer) {
        k = params.by_n(rest, &n);
      } else {
        k = rest % kChannels, n = rest / kChannels;
      }
    } else if (params.k_outer) {
      k = params.by_taps(params.by_n(i, &n), &tap);
    } else {
      k = i % kChannels;
      n = params.by_taps(i / kChannels, &tap);
    }
    const int32_t channel = k_tile * kChannels + k, result = first_n + n;
    const int32_t kh = params.by_kernel_w(first_tap + tap, &kw);
    const bool exists = channel < params.k_channels && result < params.n_channels && first_tap + tap < taps;
    const Element* g = g_weight + channel * params.stride[0] + result * params.stride[1] + kh * params.stride[2] +
                       kw * params.stride[3];
    s_tile[k * kPitch + n * params.by_taps.value + tap] = exists ? operand_bits(g) : Bits<Element>{0};
  }
  __syncthreads();
  for (int32_t i = thread; i < kPortablePackVectors * columns; i += kPortablePackThreads) {
    int32_t tap, kw;
    const int32_t column = i / kPortablePackVectors, n = first_n + params.by_taps(column, &tap);
    const int32_t vector = k_tile * kPortablePackVectors + i % kPortablePackVectors;
    const int32_t kh = params.by_kernel_w(first_tap + tap, &kw);
    // The phase of the results that a tap contributes to.
    const auto phase_of = [](const Axis& axis, int32_t k) {
      const int32_t rest = (k * axis.dilation - axis.padding) % axis.stride;
      return rest < 0 ? rest + axis.stride : rest;
    };
    const int32_t phase_h = phase_of(params.h, kh), phase_w = phase_of(params.w, kw);
    if (vector >= params.channel_vectors || n >= params.n_channels || first_tap + tap >= taps) continue;
    if (phase_h >= params.phases_h || phase_w >= params.phases_w) continue;  // no result is of that phase
    const int32_t taps_of_row = (params.w.kernel - 1 - kw % params.tap_step_w) / params.tap_step_w + 1;
    const int32_t of_phase = kh / params.tap_step_h * taps_of_row + kw / params.tap_step_w;
    alignas(16) Bits<Element> elements[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      elements[j] = s_tile[(i % kPortablePackVectors * kVector + j) * kPitch + column];
    }
    uint4 words;
    memcpy(&words, elements, sizeof(words));
    const int32_t phase = (group * params.phases_h + phase_h) * params.phases_w + phase_w;
    const int64_t slot = (int64_t{phase} * params.n_channels + n) * params.slot_vectors;
    static_cast<uint4*>(params.packed)[slot + of_phase * params.channel_vectors + vector] = words;
  }
#endif
}

}  // namespace convt::portable
