// Operands of Hopper's matrix products: element types, and the split of float32 into terms. Must not know: which kernel
// multiplies them.
#pragma once

#include <type_traits>

#include "element/arithmetic.cuh"
#include "problem/problem.h"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::element {

// Arithmetic of the products.
enum class Operand { kTf32, kTf32x3, kBFloat16, kFloat16 };

// The arithmetic of a tensor-core precision class.
constexpr Operand operand_of(DataType dtype, Precision precision) {
  if (dtype == DataType::kFloat32) return precision == Precision::kTf32x3 ? Operand::kTf32x3 : Operand::kTf32;
  return dtype == DataType::kBFloat16 ? Operand::kBFloat16 : Operand::kFloat16;
}

template <Operand kOperandValue>
struct OperandTraits {
  static constexpr Operand kOperand = kOperandValue;
  static constexpr bool kFloat32 = kOperand == Operand::kTf32 || kOperand == Operand::kTf32x3;
  static constexpr bool kSplit = kOperand == Operand::kTf32x3;  // each operand is a sum of two TF32 numbers
  using Element =
      std::conditional_t<kFloat32, float, std::conditional_t<kOperand == Operand::kBFloat16, __nv_bfloat16, __half>>;
  static constexpr int kChannels = kFloat32 ? 4 : 8;  // source channels per plane of 16 bytes
  static constexpr int kTerms = kSplit ? 2 : 1;  // planes of high terms, then of low terms
};

template <Operand kOperandValue, int kNValue>
struct ProductTraits : OperandTraits<kOperandValue> {
  static constexpr int kN = kNValue;  // result channels per tile
};

#ifdef CONVT_HAS_WGMMA
// The part of `value` that `high` does not represent. Infinities have no low term.
__device__ __forceinline__ float low_term(float value, float high) {
  const float rest = value - high;
  return isinf(value) || isinf(high) ? 0.0f : ptx::round_tf32(rest);
}
#endif

}  // namespace convt::element
