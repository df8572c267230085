// A unit of a warp: its position tiles times its column tiles, all taps of a stage's channels.
#pragma once

#include "mma_sm90a/tile.cuh"
#include "mma_sm90a/traits.cuh"
#include "ptx/shared.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename Traits>
using Accumulators = float[Traits::kColumnTiles][Traits::kPositionTiles][4];

// A step of K of one tap.
struct Step {
  uint32_t source;  // bytes from a position's operand at the least offsets
  uint32_t mask;    // bit: column tile of the unit that has the tap
};

// Weights are the first operand, whose rows are columns of the pass; positions the second.
template <typename Traits>
struct Fragments {
  uint32_t weight[Traits::kColumnTiles][4];
  uint32_t source[Traits::kPositionTiles][2];
};

template <typename Traits>
__device__ __forceinline__ void load_fragments(Fragments<Traits>& r,
                                               const uint32_t (&s_position)[Traits::kPositionTiles], uint32_t source,
                                               uint32_t s_weight) {
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) ptx::load_shared(r.source[n], s_position[n] + source);
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) ptx::load_shared(r.weight[m], s_weight + m * 512);
}

template <typename Traits>
__device__ __forceinline__ void multiply_step(Accumulators<Traits>& r_sums, const Fragments<Traits>& r, uint32_t mask) {
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) {
    if ((mask >> m & 1) == 0) continue;
#pragma unroll
    for (int n = 0; n < Traits::kPositionTiles; ++n) Traits::multiply(r_sums[m][n], r.weight[m], r.source[n]);
  }
}

// s_position: the lane's first plane at its positions, at the least offsets; s_weight: the lane's weights of the unit's
// first column tile, at the stage's first step. Operands are read a step ahead.
template <typename Traits>
__device__ __forceinline__ void multiply(Accumulators<Traits>& r_sums, int32_t steps, const Step* s_steps,
                                         const uint32_t (&s_position)[Traits::kPositionTiles], uint32_t s_weight,
                                         uint32_t weight_step) {
  Fragments<Traits> r_even, r_odd;
  Step even = s_steps[0], odd{};
  load_fragments<Traits>(r_even, s_position, even.source, s_weight);
#pragma unroll 1
  for (int32_t step = 0; step < steps; step += 2) {
    if (step + 1 < steps) {
      odd = s_steps[step + 1];
      load_fragments<Traits>(r_odd, s_position, odd.source, s_weight + weight_step);
    }
    multiply_step<Traits>(r_sums, r_even, even.mask);
    if (step + 1 == steps) break;
    s_weight += 2 * weight_step;
    if (step + 2 < steps) {
      even = s_steps[step + 2];
      load_fragments<Traits>(r_even, s_position, even.source, s_weight);
    }
    multiply_step<Traits>(r_sums, r_odd, odd.mask);
  }
}

#endif

}  // namespace convt::mma_sm90a
