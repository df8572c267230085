// Loads and stores of shared memory by 32-bit address (PTX ISA, "ld.shared", "st.shared"). Address arithmetic on
// generic pointers costs a main loop more than its loads. `volatile` keeps them in program order among themselves and
// around barriers.
#pragma once

#include <cstdint>

namespace convt::ptx {

// 32-bit address of a shared-memory object.
__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// st.shared.b32
__device__ __forceinline__ void store_shared(uint32_t shared, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(word) : "memory");
}

// st.shared.b16
__device__ __forceinline__ void store_shared_16(uint32_t shared, uint16_t half) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(shared), "h"(half) : "memory");
}

// st.shared.v2.b32
__device__ __forceinline__ void store_shared(uint32_t shared, const uint32_t (&words)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared), "r"(words[0]), "r"(words[1]) : "memory");
}

// st.shared.v4.b32
__device__ __forceinline__ void store_shared(uint32_t shared, const uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

// ld.shared.b32
__device__ __forceinline__ uint32_t load_shared(uint32_t shared) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(shared));
  return word;
}

// ld.shared.b32 if `exists`, otherwise zero
__device__ __forceinline__ uint32_t load_shared_or_zero(uint32_t shared, bool exists) {
  uint32_t word = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %2, 0;\n"
      "@exists ld.shared.b32 %0, [%1];\n"
      "}"
      : "+r"(word)
      : "r"(shared), "r"(static_cast<int32_t>(exists)));
  return word;
}

// ld.shared.u16
__device__ __forceinline__ uint32_t load_shared_16(uint32_t shared) {
  uint16_t half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(shared));
  return half;
}

// ld.shared.v2.b32
__device__ __forceinline__ void load_shared(uint32_t (&words)[2], uint32_t shared) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(shared));
}

// ld.shared.v4.b32
__device__ __forceinline__ void load_shared(uint32_t (&words)[4], uint32_t shared) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared));
}

// ldmatrix.x4: four matrices of 8 rows of 16 bytes, at the addresses of lanes 0 to 7, 8 to 15 and so on. Lane t
// receives word t % 4 of row t / 4 of each. Called by the whole warp.
__device__ __forceinline__ void load_matrices(uint32_t (&words)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared));
}

// ldmatrix.x4.trans of 16-bit elements. Lane t receives elements 2 * (t % 4) and 2 * (t % 4) + 1 of column t / 4, the
// first in the lower half.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&words)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared));
}

// ld.shared.v4.f32 at offset kOffset
template <int kOffset>
__device__ __forceinline__ void load_shared(float (&r)[4], uint32_t shared) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
               : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
               : "r"(shared), "n"(kOffset));
}

// ld.shared.v2.f32
template <int kOffset>
__device__ __forceinline__ void load_shared(float (&r)[2], uint32_t shared) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];" : "=f"(r[0]), "=f"(r[1]) : "r"(shared), "n"(kOffset));
}

// ld.shared.v2.f64
template <int kOffset>
__device__ __forceinline__ void load_shared(double (&r)[2], uint32_t shared) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2 + %3];" : "=d"(r[0]), "=d"(r[1]) : "r"(shared), "n"(kOffset));
}

// Makes `value` opaque to the compiler, which then recomputes everything derived from it.
__device__ __forceinline__ void opaque(int32_t& value) { asm volatile("" : "+r"(value)); }

}  // namespace convt::ptx
