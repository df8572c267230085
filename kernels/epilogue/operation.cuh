// Epilogue operations on one value. Exact classes use the formulas of PyTorch's CUDA kernels. Tensor-core classes use
// faster formulas, whose error is below that of the products. Must not know: where values and operands are stored.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "problem/epilogue.h"
#include "ptx/pointwise.cuh"

namespace convt::epilogue {

// Propagates NaN, as PyTorch's clamp.
__device__ __forceinline__ float clamp(float value, float low, float high) { return ptx::clamp(value, low, high); }
__device__ __forceinline__ double clamp(double value, double low, double high) {
  const double clamped = fmin(fmax(value, low), high);
  return value != value ? value : clamped;
}

// Operations with an operand. The intrinsics keep the compiler from contracting two operations into one rounding.
__device__ __forceinline__ float with_operand(Operation operation, float y, float t) {
  switch (operation) {
    case Operation::kAdd: return __fadd_rn(y, t);
    case Operation::kSubtract: return __fsub_rn(y, t);
    case Operation::kMultiply: return __fmul_rn(y, t);
    case Operation::kDivide: return __fdiv_rn(y, t);
    default: return y > 0 ? y : __fmul_rn(y, t);  // kLeakyRelu
  }
}
__device__ __forceinline__ double with_operand(Operation operation, double y, double t) {
  switch (operation) {
    case Operation::kAdd: return __dadd_rn(y, t);
    case Operation::kSubtract: return __dsub_rn(y, t);
    case Operation::kMultiply: return __dmul_rn(y, t);
    case Operation::kDivide: return __ddiv_rn(y, t);
    default: return y > 0 ? y : __dmul_rn(y, t);
  }
}

// Unary functions, in PyTorch's formulas. For softplus, `first` is beta and `second` the threshold.
template <typename Number>
__device__ __forceinline__ Number exactly(Operation operation, Number y, Number first, Number second) {
  constexpr Number kOne = 1, kHalf = 0.5;
  switch (operation) {
    case Operation::kClamp: return clamp(y, first, second);
    case Operation::kSilu: return y / (kOne + exp(-y));
    case Operation::kGelu: return y * kHalf * (kOne + erf(y * Number(0.70710678118654752440)));
    case Operation::kGeluTanh: {
      const Number inner = Number(0.79788456080286535588) * (y + Number(0.044715) * (y * y * y));
      return kHalf * y * (kOne + tanh(inner));
    }
    case Operation::kTanh: return tanh(y);
    case Operation::kSigmoid: return kOne / (kOne + exp(-y));
    case Operation::kHardswish: {
      const Number gate = y + Number(3) > 0 ? y + Number(3) : Number(0);
      return y * (gate < Number(6) ? gate : Number(6)) * Number(1.0f / 6.0f);  // PyTorch rounds 1/6 to float32 in every
                                                                               // dtype
    }
    case Operation::kMish: return y * tanh(log1p(exp(y)));
    default: return y * first > second ? y : log1p(exp(y * first)) / first;  // kSoftplus
  }
}

constexpr float kLog2E = 1.44269504f;

// 1 / (1 + e^-y), within 2e-7. kRough: within 2^-11, in half the time, for results with 8 bits of mantissa.
template <bool kRough = false>
__device__ __forceinline__ float quick_sigmoid(float y) {
  if constexpr (kRough) return fmaf(ptx::rough_tanh(0.5f * y), 0.5f, 0.5f);
  return ptx::rough_reciprocal(1.0f + ptx::rough_exp2(-kLog2E * y));
}

// 1 - 2 / (1 + e^2y), within 2e-7. Near 0 it uses the series.
__device__ __forceinline__ float quick_tanh(float y) {
  const float far = fmaf(ptx::rough_reciprocal(1.0f + ptx::rough_exp2(2.0f * kLog2E * y)), -2.0f, 1.0f);
  const float near = fmaf(y * y * y, -1.0f / 3.0f, y);
  return fabsf(y) < 0.04f ? near : far;
}

// Half of erfc(|y| / sqrt(2)), within 1e-7 (Abramowitz and Stegun, 7.1.26).
__device__ __forceinline__ float quick_normal_tail(float y) {
  const float x = fabsf(y) * 0.70710678f, t = ptx::rough_reciprocal(fmaf(0.3275911f, x, 1.0f));
  const float sum =
      t * (0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f))));
  return sum * ptx::rough_exp2(-0.5f * kLog2E * (y * y));
}

// Fast unary functions. kRough as above; otherwise within 1e-6 of the larger of 1 and |y|.
template <bool kRough = false>
__device__ __forceinline__ float quickly(Operation operation, float y, float first, float second) {
  switch (operation) {
    case Operation::kSilu: return y * quick_sigmoid<kRough>(y);
    case Operation::kGelu: {
      const float tail = quick_normal_tail(y);
      return y * (y > 0.0f ? 1.0f - tail : tail);
    }
    case Operation::kGeluTanh: return y * quick_sigmoid<kRough>(1.5957691f * fmaf(0.044715f * y * y, y, y));
    case Operation::kTanh: return kRough ? ptx::rough_tanh(y) : quick_tanh(y);
    case Operation::kSigmoid: return quick_sigmoid<kRough>(y);
    case Operation::kHardswish: return y * fminf(fmaxf(y + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);
    case Operation::kMish: {  // tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1), which rounds to 1 from y = 20 on
      const float e = ptx::rough_exp2(kLog2E * fminf(y, 20.0f)), n = e * (e + 2.0f);
      return y * (n * ptx::rough_reciprocal(n + 2.0f));
    }
    case Operation::kSoftplus:
      return y * first > second
                 ? y
                 : ptx::rough_log2(1.0f + ptx::rough_exp2(kLog2E * y * first)) * ptx::rough_reciprocal(kLog2E * first);
    default: return clamp(y, first, second);
  }
}

}  // namespace convt::epilogue
