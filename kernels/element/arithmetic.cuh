// Conversions of elements, and the arithmetic of accumulation. Must not know: the order of sums.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "problem/problem.h"

namespace convt::element {

template <DataType>
struct ElementOf;
template <>
struct ElementOf<DataType::kFloat32> {
  using type = float;
};
template <>
struct ElementOf<DataType::kFloat64> {
  using type = double;
};
template <>
struct ElementOf<DataType::kFloat16> {
  using type = __half;
};
template <>
struct ElementOf<DataType::kBFloat16> {
  using type = __nv_bfloat16;
};

__device__ __forceinline__ float to_accumulator(float value) { return value; }
__device__ __forceinline__ double to_accumulator(double value) { return value; }
__device__ __forceinline__ float to_accumulator(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_accumulator(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rounds a result once, to nearest even.
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
template <typename Element>
__device__ __forceinline__ Element to_element(double value) {
  return value;
}

// The intrinsics prevent compiler flags from changing the rounding.
__device__ __forceinline__ float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused_multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }

// Adds the contents of a word to the sum: a float32 number, or two halves in sequence.
template <typename Element>
__device__ __forceinline__ float add_word(float sum, uint32_t word) {
  if constexpr (sizeof(Element) == 4) {
    return add(sum, __uint_as_float(word));
  } else {
    Element halves[2];
    memcpy(halves, &word, sizeof(word));
    return add(add(sum, to_accumulator(halves[0])), to_accumulator(halves[1]));
  }
}

}  // namespace convt::element
