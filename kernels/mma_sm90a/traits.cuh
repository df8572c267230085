// One instance of the mma engine at compile time.
#pragma once

#include "element/arithmetic.cuh"
#include "mma_sm90a/layout.h"
#include "ptx/mma_sm80.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::mma_sm90a {

// kSplit: operands are sums of two TF32 numbers (tf32x3).
template <DataType kDataTypeValue, int kColumnTilesValue, int kPositionTilesValue, bool kSplitValue = false>
struct Traits {
  static constexpr DataType kDataType = kDataTypeValue;
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr bool kSplit = kSplitValue;
  static constexpr int kColumnTiles = kColumnTilesValue;  // of a warp
  static constexpr int kPositionTiles = kPositionTilesValue;
  static constexpr int kUnitPositions = kPositionTiles * kMmaPositions;
  static constexpr int kUnitColumns = kColumnTiles * kMmaColumns;
  static constexpr int kPlaneChannels = 8 / sizeof(Element);  // of the 8 bytes that a plane holds of a position
  static constexpr int kVector = 16 / sizeof(Element);
  static constexpr int kStepElements = 32 / sizeof(Element);  // of K

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

}  // namespace convt::mma_sm90a
