// Accumulates the terms of a thread's sums, in their order.
#pragma once

#include "element/arithmetic.cuh"
#include "streamed/prologue.cuh"

namespace convt::streamed {

// Accumulates one existing term of a position.
template <int kChannels>
__device__ __forceinline__ void multiply_term(float source, const float (&weights)[kChannels],
                                              float (&r_acc)[kChannels]) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) r_acc[c] = element::fused_multiply_add(source, weights[c], r_acc[c]);
}

template <int kChannels>
__device__ __forceinline__ void read_weights(const float* s_weights, float (&weights)[kChannels]) {
#pragma unroll
  for (int c = 0; c < kChannels; c += 4) {
    const float4 quad = *reinterpret_cast<const float4*>(s_weights + c);
    weights[c] = quad.x, weights[c + 1] = quad.y, weights[c + 2] = quad.z, weights[c + 3] = quad.w;
  }
}

// Terms that are read at once, while the previous ones are multiplied.
template <int kPositions, bool kInside>
struct StreamedBatch {
  static constexpr int kTerms = 8 / kPositions;
  float source[kTerms][kPositions];

  __device__ __forceinline__ void read(const StreamedTerms& terms, const StreamedPosition (&positions)[kPositions],
                                       int32_t begin) {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      const int32_t offset = terms.s_sources[begin + i];
      const StreamedTap tap = terms.s_taps[begin + i];
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
        if (kInside || positions[p].has(tap)) source[i][p] = __ldg(positions[p].g_source + offset);
      }
    }
  }

  // kWhole: all terms of the batch exist.
  template <bool kWhole, int kChannels>
  __device__ __forceinline__ void multiply(const StreamedParams& params, const StreamedTerms& terms,
                                           const StreamedPosition (&positions)[kPositions], const float* s_weights,
                                           int32_t begin, float (&r_acc)[kPositions][kChannels]) const {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
      if (!kWhole && begin + i >= terms.count) return;
      float weights[kChannels];
      read_weights(s_weights + (begin + i) * params.weight_pitch, weights);
      const StreamedTap tap = terms.s_taps[begin + i];
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
        if (kInside || positions[p].has(tap)) multiply_term(source[i][p], weights, r_acc[p]);
      }
    }
  }
};

// Reads the source element by element. Supports any strides; fastest if lanes read contiguous elements.
template <bool kInside, int kChannels, int kPositions>
__device__ __forceinline__ void multiply_elements(const StreamedParams& params, const StreamedTerms& terms,
                                                  const StreamedPosition (&positions)[kPositions],
                                                  const float* s_weights, float (&r_acc)[kPositions][kChannels]) {
  using Batch = StreamedBatch<kPositions, kInside>;
  static_assert(2 * Batch::kTerms <= kStreamedPadding);
  if (terms.count == 0) return;
  Batch even, odd;
  even.read(terms, positions, 0);
  int32_t begin = 0;
#pragma unroll 1
  for (; begin + 2 * Batch::kTerms <= terms.count; begin += 2 * Batch::kTerms) {
    odd.read(terms, positions, begin + Batch::kTerms);
    even.template multiply<true>(params, terms, positions, s_weights, begin, r_acc);
    even.read(terms, positions, begin + 2 * Batch::kTerms);
    odd.template multiply<true>(params, terms, positions, s_weights, begin + Batch::kTerms, r_acc);
  }
  odd.read(terms, positions, begin + Batch::kTerms);
  even.template multiply<false>(params, terms, positions, s_weights, begin, r_acc);
  odd.template multiply<false>(params, terms, positions, s_weights, begin + Batch::kTerms, r_acc);
}

// Reads four neighbouring channels of all taps at once, because a sum adds all taps of a channel before the next
// channel.
template <int kTaps, bool kInside, int kChannels, int kPositions>
__device__ __forceinline__ void multiply_vectors(const StreamedParams& params, const StreamedTerms& terms,
                                                 const StreamedPosition (&positions)[kPositions],
                                                 const float* s_weights, float (&r_acc)[kPositions][kChannels]) {
  const int32_t taps = terms.taps_h * terms.taps_w;
  const int32_t end_ci = taps > 0 ? params.group_ci : 0;
#pragma unroll 1
  for (int32_t ci = 0; ci < end_ci; ci += kStreamedVector) {
    float source[kTaps][kPositions][kStreamedVector];
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      if (tap >= taps) break;
      const int32_t offset = terms.s_sources[tap] + ci;
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
        if (!kInside && !positions[p].has(terms.s_taps[tap])) continue;
        const float4 quad = __ldg(reinterpret_cast<const float4*>(positions[p].g_source + offset));
        float (&r_quad)[kStreamedVector] = source[tap][p];
        r_quad[0] = quad.x, r_quad[1] = quad.y, r_quad[2] = quad.z, r_quad[3] = quad.w;
      }
    }
    const float* s_row = s_weights + ci * taps * params.weight_pitch;
#pragma unroll
    for (int k = 0; k < kStreamedVector; ++k) {
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if (tap >= taps) break;
        float weights[kChannels];
        read_weights(s_row, weights);
        s_row += params.weight_pitch;
#pragma unroll
        for (int p = 0; p < kPositions; ++p) {
          if (kInside || positions[p].has(terms.s_taps[tap])) multiply_term(source[tap][p][k], weights, r_acc[p]);
        }
      }
    }
  }
}

}  // namespace convt::streamed
