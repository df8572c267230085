// Traits and fragments of the mma engine, and the main loop of the mma family. A warp multiplies one unit, position
// tiles x column tiles, over all taps and channels of a stage.
#pragma once

#include "element/arithmetic.cuh"
#include "element/registers.cuh"
#include "mma_sm90a/layout.h"
#include "ptx/mma_sm80.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::mma_sm90a {

// Compile-time parameters of an instance. kSplit: operands are sums of two TF32 numbers (tf32x3).
template <DataType kDataTypeValue, int kColumnTilesValue, int kPositionTilesValue, bool kSplitValue = false>
struct Traits {
  static constexpr DataType kDataType = kDataTypeValue;
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr bool kSplit = kSplitValue;
  static constexpr int kColumnTiles = kColumnTilesValue;  // per warp
  static constexpr int kPositionTiles = kPositionTilesValue;
  static constexpr int kUnitPositions = kPositionTiles * kMmaPositions;
  static constexpr int kUnitColumns = kColumnTiles * kMmaColumns;
  static constexpr int kPlaneChannels = 8 / sizeof(Element);  // a plane contains 8 bytes per position
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kStepElements = 32 / sizeof(Element);  // elements of K per step

#ifdef CONVT_HAS_WGMMA
  __device__ __forceinline__ static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (kDataType == DataType::kFloat32) {
      ptx::mma_tf32(d, a, b);
    } else if constexpr (kDataType == DataType::kFloat16) {
      ptx::mma_f16(d, a, b);
    } else {
      ptx::mma_bf16(d, a, b);
    }
  }
#endif
};

#ifdef CONVT_HAS_WGMMA

template <typename Traits>
using Accumulators = float[Traits::kColumnTiles][Traits::kPositionTiles][4];

// A step of K of one tap.
struct Step {
  uint32_t source;  // byte offset from a position's operand at the least offsets
  uint32_t mask;    // bit m: column tile m of the unit uses the tap
};

// Weights are operand A, with columns of the pass as rows. Positions are operand B.
template <typename Traits>
struct Fragments {
  uint32_t weight[Traits::kColumnTiles][4];
  uint32_t source[Traits::kPositionTiles][2];
};

// Stores a lane's weights of rows g and g + 8 of operand A to its 16 bytes of the fragment in shared memory. Rounds
// float32 to TF32, except in tf32x3.
template <typename Traits>
__device__ __forceinline__ void store_fragment(unsigned char* s_to,
                                               typename Traits::Element (&r_weight)[2][Traits::kPlaneChannels]) {
  uint32_t r_words[2][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (sizeof(typename Traits::Element) == 4 && !Traits::kSplit) {
#pragma unroll
      for (int c = 0; c < Traits::kPlaneChannels; ++c) r_weight[half][c] = ptx::round_tf32(r_weight[half][c]);
    }
    memcpy(r_words[half], r_weight[half], 8);
  }
  *reinterpret_cast<uint4*>(s_to) = make_uint4(r_words[0][0], r_words[1][0], r_words[0][1], r_words[1][1]);
}

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
__device__ __forceinline__ void multiply_step(Accumulators<Traits>& r_acc, const Fragments<Traits>& r, uint32_t mask) {
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) {
    if ((mask >> m & 1) == 0) continue;
#pragma unroll
    for (int n = 0; n < Traits::kPositionTiles; ++n) Traits::multiply(r_acc[m][n], r.weight[m], r.source[n]);
  }
}

// Multiplies the steps of a stage. s_position: address of the lane's first plane at its positions, at the least
// offsets. s_weight: address of the lane's weights of the unit's first column tile, at the stage's first step. Operands
// are loaded one step ahead.
template <typename Traits>
__device__ __forceinline__ void multiply(Accumulators<Traits>& r_acc, int32_t steps, const Step* s_steps,
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
    multiply_step<Traits>(r_acc, r_even, even.mask);
    if (step + 1 == steps) break;
    s_weight += 2 * weight_step;
    if (step + 2 < steps) {
      even = s_steps[step + 2];
      load_fragments<Traits>(r_even, s_position, even.source, s_weight);
    }
    multiply_step<Traits>(r_acc, r_odd, odd.mask);
  }
}

#endif

}  // namespace convt::mma_sm90a
