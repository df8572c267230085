// Multiplies the source tile with the weights, both in shared memory, and accumulates in registers. The order of each
// sum is channel, tap row, tap column, ascending. Elements outside the source are not multiplied.
#pragma once

#include "thin/tile.cuh"

namespace convt::thin {

// Whether every tap of `count` positions from q on is inside the source.
__device__ __forceinline__ bool is_inside(const PhaseAxis& axis, int32_t q, int32_t count) {
  return q + axis.least_offset >= 0 && q + count - 1 + axis.greatest_offset < axis.in;
}

// Lists for each position of a tile the taps of one axis outside the source, as a bit mask.
__device__ __forceinline__ void list_outside(const PhaseAxis& axis, int32_t q, int32_t count, uint32_t* s_outside) {
  for (int32_t i = threadIdx.x; i < count; i += blockDim.x) {
    uint32_t bits = 0;
#pragma unroll 1
    for (int32_t t = 0; t < axis.num_taps; ++t) {
      const int32_t place = q + i + axis.offset[t];
      bits |= static_cast<uint32_t>(place < 0 || place >= axis.in) << t;
    }
    s_outside[i] = bits;
  }
}

// One tap of one channel in shared memory: its byte offset from a position, and its bits in the masks of taps outside
// the source (tap row in the upper half, tap column in the lower).
struct Step {
  int32_t offset;
  uint32_t outside;
};

template <typename Traits>
struct Operands {
  typename Traits::Element source[Traits::kPositions];
  float4 weight[Traits::kQuads];

  __device__ __forceinline__ void load(const unsigned char* s_source, const float* s_weight) {
#pragma unroll
    for (int j = 0; j < Traits::kPositions; ++j) {
      source[j] = reinterpret_cast<const typename Traits::Element*>(s_source)[32 * j];
    }
#pragma unroll
    for (int quad = 0; quad < Traits::kQuads; ++quad) {
      weight[quad] = *reinterpret_cast<const float4*>(s_weight + 4 * quad);
    }
  }
};

// Multiplies num_steps taps, channel by channel. s_source: the thread's first position. s_weight: [steps][outputs],
// starting at the thread's block of virtual outputs. s_quads: [steps]; a bit per quad of that block that has the tap.
// Two steps after num_steps must be readable. r_outside: for each position, the tap rows (upper half) and columns
// outside the source.
template <typename Traits, bool kAllInside, bool kAllTaps>
__device__ __forceinline__ void multiply(float (&r_acc)[Traits::kOutputs][Traits::kPositions], int32_t num_steps,
                                         const typename Traits::Element* s_source,
                                         const uint32_t (&r_outside)[Traits::kPositions], const float* s_weight,
                                         int32_t outputs, const Step* s_steps, const uint8_t* s_quads) {
  const auto* s_first = reinterpret_cast<const unsigned char*>(s_source);
  // Operands are prefetched one step ahead, step descriptions two steps ahead.
  Step step = s_steps[0];
  Step next_step = s_steps[1];
  Operands<Traits> operands;
  operands.load(s_first + step.offset, s_weight);
#pragma unroll 2
  for (int32_t i = 0; i < num_steps; ++i) {
    s_weight += outputs;
    Operands<Traits> next;
    next.load(s_first + next_step.offset, s_weight);
    const Step later_step = s_steps[i + 2];
    const uint32_t quads = kAllTaps ? 0 : s_quads[i];
    float r_source[Traits::kPositions];
    bool r_valid[Traits::kPositions];
#pragma unroll
    for (int j = 0; j < Traits::kPositions; ++j) {
      r_source[j] = element::to_accumulator(operands.source[j]);
      r_valid[j] = kAllInside || (r_outside[j] & step.outside) == 0;
    }
#pragma unroll
    for (int quad = 0; quad < Traits::kQuads; ++quad) {
      if (!kAllTaps && (quads >> quad & 1) == 0) continue;
      const float4 weight = operands.weight[quad];
      const float r_weight[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
      for (int j = 0; j < Traits::kPositions; ++j) {
        if (!r_valid[j]) continue;
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          float& sum = r_acc[4 * quad + o][j];
          sum = element::fused_multiply_add(r_source[j], r_weight[o], sum);
        }
      }
    }
    operands = next;
    step = next_step;
    next_step = later_step;
  }
}

}  // namespace convt::thin
