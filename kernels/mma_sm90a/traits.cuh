// Traits, accumulators and weight fragments of the forward kernels and of the gradient of the input.
#pragma once

#include "element/arithmetic.cuh"
#include "element/registers.cuh"
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

#endif

}  // namespace convt::mma_sm90a
