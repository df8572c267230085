// Fragments and accumulators of matrix products, as arrays of any dimensions. Must not know: their contents.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/wgmma_sm90a.cuh"

namespace convt::element {

#ifdef CONVT_HAS_WGMMA

__device__ __forceinline__ void clear(float& accumulator) { accumulator = 0; }

// Pins registers at this point. Otherwise ptxas may move accumulators, or overwrite a fragment that a product in flight
// reads, and would then serialize the products (C7513 to C7515).
__device__ __forceinline__ void fence_registers(float& accumulator) { ptx::fence_accumulator(accumulator); }
__device__ __forceinline__ void fence_registers(uint32_t& fragment) { ptx::fence_fragment(fragment); }

template <typename T, size_t kCount>
__device__ __forceinline__ void clear(T (&r)[kCount]) {
#pragma unroll
  for (size_t i = 0; i < kCount; ++i) clear(r[i]);
}

template <typename T, size_t kCount>
__device__ __forceinline__ void fence_registers(T (&r)[kCount]) {
#pragma unroll
  for (size_t i = 0; i < kCount; ++i) fence_registers(r[i]);
}

// High and low terms of operands that are sums of two TF32 numbers.
template <typename Registers>
struct Terms {
  Registers high, low;
};

template <typename Registers>
__device__ __forceinline__ void fence_registers(Terms<Registers>& r) {
  fence_registers(r.high);
  fence_registers(r.low);
}

// Writes a fragment register at this point and not earlier, because products in flight may still read it. float32 is
// rounded to TF32, halves are copied. `zero` is 0 but opaque to ptxas, which would otherwise remove a plain copy.
template <typename Element>
__device__ __forceinline__ void write_fragment(uint32_t& fragment, uint32_t word, uint32_t zero) {
  if constexpr (sizeof(Element) == 4) {
    ptx::write_fragment_tf32(fragment, word);
  } else {
    ptx::write_fragment(fragment, word ^ zero);
  }
}

// Writes both terms of a number. Tensor cores ignore bits of the low term that TF32 does not have. An infinity's low
// term is NaN.
__device__ __forceinline__ void write_terms(uint32_t& high, uint32_t& low, uint32_t word) {
  ptx::write_fragment_tf32(high, word);
  ptx::write_fragment_rest(low, word, high);
}

#endif

}  // namespace convt::element
