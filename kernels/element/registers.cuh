// Registers that matrix products read or add to, and arrays of them of any dimensions.
// Must not know: what is in them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/wgmma_sm90a.cuh"

namespace convt::element {

#ifdef CONVT_HAS_WGMMA

__device__ __forceinline__ void clear(float& accumulator) { accumulator = 0; }

// Here they are in registers: ptxas, which may make accumulators later or use them sooner, or write a fragment that a
// product in flight still reads, would serialize the products (C7513 to C7515).
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

// The high and the low terms of operands that are sums of two TF32 numbers.
template <typename Registers>
struct Terms {
  Registers high, low;
};

template <typename Registers>
__device__ __forceinline__ void fence_registers(Terms<Registers>& r) {
  fence_registers(r.high);
  fence_registers(r.low);
}

// Products read their fragments while they are in flight, so that the registers are written here and not a moment
// sooner: float32 rounded to TF32, halves as they are. `zero` is 0, which ptxas does not know: it would drop a copy.
template <typename Element>
__device__ __forceinline__ void write_fragment(uint32_t& fragment, uint32_t word, uint32_t zero) {
  if constexpr (sizeof(Element) == 4) {
    ptx::write_fragment_tf32(fragment, word);
  } else {
    ptx::write_fragment(fragment, word ^ zero);
  }
}

// Both terms of a number. Tensor cores leave out the low term's bits that TF32 does not have; an infinity's low term is
// NaN.
__device__ __forceinline__ void write_terms(uint32_t& high, uint32_t& low, uint32_t word) {
  ptx::write_fragment_tf32(high, word);
  ptx::write_fragment_rest(low, word, high);
}

#endif

}  // namespace convt::element
