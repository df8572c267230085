// Packs weights for the portable engine: each result channel's K contiguous, float32 rounded to TF32.
#pragma once

#include <cstdint>

#include "pack/pixels.cuh"
#include "portable/layout.h"

namespace convt::portable {

// Output: [group][phase][result channel][tap row, tap, vector of channels]. Vectors after a phase's last are not
// written. The weight passes through shared memory, as pixels do (pack/pixels.cuh), so that loads follow memory order.
template <typename Element>
__global__ void __launch_bounds__(kPackTileThreads) pack_weights(const __grid_constant__ PackWeightsParams params) {
#ifdef CONVT_HAS_MMA
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element)), kChannels = kPackTileVectors * kVector;
  constexpr int kPitch = kPackTilePixels + 4 / static_cast<int>(sizeof(Element));
  extern __shared__ __align__(128) unsigned char s_bytes[];
  auto* s_tile = reinterpret_cast<pack::Bits<Element>*>(s_bytes);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  int32_t k_tile, n_tile, tap_tile;
  const int32_t group = params.by_tap_tiles(
      params.by_n_tiles(params.by_k_tiles(static_cast<int32_t>(blockIdx.x), &k_tile), &n_tile), &tap_tile);
  const int32_t first_n = n_tile * params.by_n.value, first_tap = tap_tile * params.by_taps.value;
  const int32_t taps = params.h.kernel * params.w.kernel, columns = params.by_n.value * params.by_taps.value;
  const Element* g_weight = static_cast<const Element*>(params.weight) + group * params.group_stride;
#pragma unroll 4
  for (int32_t i = thread; i < kChannels * columns; i += kPackTileThreads) {
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
    s_tile[k * kPitch + n * params.by_taps.value + tap] = exists ? pack::operand_bits(g, true) : pack::Bits<Element>{0};
  }
  __syncthreads();
  for (int32_t i = thread; i < kPackTileVectors * columns; i += kPackTileThreads) {
    int32_t tap, kw;
    const int32_t column = i / kPackTileVectors, n = first_n + params.by_taps(column, &tap);
    const int32_t vector = k_tile * kPackTileVectors + i % kPackTileVectors;
    const int32_t kh = params.by_kernel_w(first_tap + tap, &kw);
    // The phase of the results to which a tap contributes.
    const auto phase_of = [](const Axis& axis, int32_t k) {
      const int32_t rest = (k * axis.dilation - axis.padding) % axis.stride;
      return rest < 0 ? rest + axis.stride : rest;
    };
    const int32_t phase_h = phase_of(params.h, kh), phase_w = phase_of(params.w, kw);
    if (vector >= params.channel_vectors || n >= params.n_channels || first_tap + tap >= taps) continue;
    if (phase_h >= params.phases_h || phase_w >= params.phases_w) continue;  // the result has no such phase
    const int32_t taps_of_row = (params.w.kernel - 1 - kw % params.tap_step_w) / params.tap_step_w + 1;
    const int32_t of_phase = kh / params.tap_step_h * taps_of_row + kw / params.tap_step_w;
    alignas(16) pack::Bits<Element> elements[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      elements[j] = s_tile[(i % kPackTileVectors * kVector + j) * kPitch + column];
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
