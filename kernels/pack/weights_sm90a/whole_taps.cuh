// Packs 4 x 4 kernels with contiguous taps, 16 bytes at a time.
#pragma once

#include "pack/weights_sm90a/places.cuh"

namespace convt::pack {

#ifdef CONVT_HAS_WGMMA

// In units of 16 bytes: the taps of a column's channel, and a stride that puts channels into different banks.
template <typename Traits>
struct WholeTaps {
  static constexpr int kVectors = kPackTaps * sizeof(typename Traits::Element) / 16;
  static constexpr int kStep = kVectors + 1;
};

// A CTA packs all taps of kPackColumns columns of a step of K. It is bound by instruction issue.
template <typename Traits>
__device__ __forceinline__ void pack_whole_taps(const Params& params, int32_t number, Tap* s_taps, uint4* s_weights) {
  using Element = typename Traits::Element;
  constexpr int kChannels = 2 * Traits::kChannels;
  constexpr int kVectors = WholeTaps<Traits>::kVectors, kStep = WholeTaps<Traits>::kStep;
  const Corner corner = corner_of<Traits>(params, number);
  const bool columns_first = params.n_stride < params.k_stride;
  const auto thread = static_cast<int32_t>(threadIdx.x);

  const Element* g_first = static_cast<const Element*>(params.w) + corner.from;
  constexpr int kOfThread = kPackColumns * kChannels * kVectors / kPackThreads;
  uint4 r[kOfThread];
  int32_t place[kOfThread];
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int32_t item = thread + i * kPackThreads, pair = item / kVectors;
    const int32_t n = columns_first ? pair % kPackColumns : pair / kChannels;
    const int32_t k = columns_first ? pair / kPackColumns : pair % kChannels;
    place[i] = (k * kPackColumns + n) * kStep + item % kVectors;
    r[i] = uint4{0, 0, 0, 0};
    if (n < corner.columns && k < corner.channels) {
      r[i] =
          __ldg(reinterpret_cast<const uint4*>(g_first + n * params.n_stride + k * params.k_stride) + item % kVectors);
    }
  }
  if (thread < kPackTaps) {
    const Tap tap = find_tap(params, thread);
    s_taps[tap.from] = tap;
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) s_weights[place[i]] = r[i];
  __syncthreads();

  char* g_tile = static_cast<char*>(params.packed) + corner.to;
  const int32_t vectors = params.k_steps * 2 * params.block_n;  // per tap
  // A thread writes four taps of a column and plane.
  static_assert(kPackThreads == kPackColumns * 2 * kPackTaps / 4);
  const int32_t column = thread % kPackColumns, plane = thread / kPackColumns % 2;
  const int32_t first_tap = thread / kPackColumns / 2 * 4;
  const int32_t n = channel_of_column(corner.column + column, params.interleaved) - corner.column;
  const int32_t vector = place_of_vector(params, corner.step * 2 + plane, corner.column + column);
  Element taps[Traits::kChannels][4];
#pragma unroll
  for (int c = 0; c < Traits::kChannels; ++c) {
    const auto* s_column =
        reinterpret_cast<const Element*>(s_weights + ((plane * Traits::kChannels + c) * kPackColumns + n) * kStep);
    memcpy(taps[c], __builtin_assume_aligned(s_column + first_tap, sizeof(taps[c])), sizeof(taps[c]));
  }
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const Tap& tap = s_taps[first_tap + t];
    Element channels[Traits::kChannels];
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) channels[c] = taps[c][t];
    store_channels<Traits>(g_tile + tap.to + int64_t{corner.chunk} * tap.stage_bytes, vector, vectors, channels);
  }
}

#endif

}  // namespace convt::pack
