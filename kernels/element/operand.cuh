// Operands of Hopper's matrix products: what their elements are, and how float32 is rounded to them.
// Must not know: which kernel multiplies them.
#pragma once

#include <type_traits>

#include "element/arithmetic.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::element {

// The arithmetic of the products: what an operand element is.
enum class Operand { kTf32, kTf32x3, kBFloat16, kFloat16 };

template <Operand kOperandValue, int kNValue>
struct ProductTraits {
  static constexpr Operand kOperand = kOperandValue;
  static constexpr bool kFloat32 = kOperand == Operand::kTf32 || kOperand == Operand::kTf32x3;
  static constexpr bool kSplit = kOperand == Operand::kTf32x3;  // operands as a sum of two TF32 numbers
  using Element =
      std::conditional_t<kFloat32, float, std::conditional_t<kOperand == Operand::kBFloat16, __nv_bfloat16, __half>>;
  static constexpr int kN = kNValue;                 // result channels of a tile
  static constexpr int kChannels = kFloat32 ? 4 : 8; // source channels of a plane: 16 bytes of each position
  static constexpr int kParts = kSplit ? 2 : 1;      // planes of high parts, then of low parts
  // Accumulators of 64 positions x kN channels; with split operands as many again hold the float32 sums.
  static constexpr int kSums = 256 / kN / kParts;
};

#ifdef CONVT_HAS_WGMMA
// What the high part leaves. Infinities have no low part.
__device__ __forceinline__ float low_part(float value, float high) {
  const float rest = value - high;
  return isinf(value) || isinf(high) ? 0.0f : ptx::round_tf32(rest);
}
#endif

}  // namespace convt::element
