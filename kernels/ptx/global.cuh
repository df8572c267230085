// Accesses to global memory. Loads of memory that is constant during the kernel (PTX ISA, "ld.global.nc", "prefetch")
// are `volatile`, which keeps them in program order, before the work that they overlap.
#pragma once

#include <cstdint>

namespace convt::ptx {

// ld.global.nc.b32 if `exists`, otherwise zero
__device__ __forceinline__ uint32_t load_global_or_zero(const void* global, bool exists) {
  uint32_t word = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %2, 0;\n"
      "@exists ld.global.nc.b32 %0, [%1];\n"
      "}"
      : "+r"(word)
      : "l"(global), "r"(static_cast<int32_t>(exists)));
  return word;
}

// ld.global.nc.v4.b32
__device__ __forceinline__ void load_global_or_zero(uint32_t (&words)[4], const void* global, bool exists) {
  words[0] = words[1] = words[2] = words[3] = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %5, 0;\n"
      "@exists ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "r"(static_cast<int32_t>(exists)));
}

// ld.global.nc.v2.b32
__device__ __forceinline__ void load_global_or_zero(uint32_t (&words)[2], const void* global, bool exists) {
  words[0] = words[1] = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %3, 0;\n"
      "@exists ld.global.nc.v2.b32 {%0, %1}, [%2];\n"
      "}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "r"(static_cast<int32_t>(exists)));
}

// ld.global.nc.u16, zero-extended by the load itself. A separate conversion would wait for memory.
__device__ __forceinline__ uint32_t load_global_16_or_zero(const void* global, bool exists) {
  uint32_t half = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %2, 0;\n"
      "@exists ld.global.nc.u16 %0, [%1];\n"
      "}"
      : "+r"(half)
      : "l"(global), "r"(static_cast<int32_t>(exists)));
  return half;
}

// prefetch.global.L2
__device__ __forceinline__ void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// Communication between CTAs of a grid ("Memory Consistency Model"): stores and loads in L2, and an atomic counter that
// orders them.

// st.global.cg.v4.f32
__device__ __forceinline__ void store_global_cg(void* global, const float* four) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(four[0]), "f"(four[1]), "f"(four[2]),
               "f"(four[3])
               : "memory");
}

// ld.global.cg.v4.f32: reads data that other CTAs stored before they incremented the counter.
__device__ __forceinline__ void load_global_cg(float (&four)[4], const void* global) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
               : "l"(global));
}

// atom.acq_rel.gpu.global.add.u32 of 1. Returns the previous count. A thread that observes the increment of another
// thread also observes stores that the other thread's CTA issued before a barrier with that thread.
__device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* global) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(global) : "memory");
  return before;
}

}  // namespace convt::ptx
