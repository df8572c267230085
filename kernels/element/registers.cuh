// Arrays of registers, of any dimensions, that matrix products read or add to.
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
__device__ __forceinline__ void keep(float& accumulator) { ptx::keep_accumulator(accumulator); }
__device__ __forceinline__ void keep(uint32_t& fragment) { ptx::keep_fragment(fragment); }

template <typename T, size_t kCount>
__device__ __forceinline__ void clear(T (&r)[kCount]) {
#pragma unroll
  for (size_t i = 0; i < kCount; ++i) clear(r[i]);
}

template <typename T, size_t kCount>
__device__ __forceinline__ void keep(T (&r)[kCount]) {
#pragma unroll
  for (size_t i = 0; i < kCount; ++i) keep(r[i]);
}

#endif

}  // namespace convt::element
