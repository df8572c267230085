// Compile-time description of one instance of the wgmma engine, and how its operands are rounded.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "plan/wgmma_instances.h"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::wgmma_sm90a {

// The arithmetic of the products: what an operand element is.
enum class Operand { kTf32, kTf32x3, kBFloat16, kFloat16 };

// A CTA is a warpgroup that multiplies, three loader warps and one warp for the weights. Two CTAs share an SM and know
// nothing of each other: while one stores its results, the other has the tensor cores for itself.
inline constexpr int kConsumerThreads = 128;
inline constexpr int kLoaderWarps = kWgmmaLoaders / 32;
inline constexpr int kThreads = kWgmmaThreads;
inline constexpr int kBlocksPerSm = kWgmmaBlocksPerSm;
inline constexpr int kConsumerRegisters = 184;
inline constexpr int kLoaderRegisters = 72;  // 184 + 72 = 2 * 128, the launch's

template <Operand kOperandValue, int kNValue>
struct Traits {
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

template <typename Element>
__device__ __forceinline__ Element to_element(float value) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

}  // namespace convt::wgmma_sm90a
