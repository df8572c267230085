// What CTAs of a grid tell each other by global memory (PTX ISA, "Memory Consistency Model"): stores and loads that
// meet in L2, and a counter that orders them.
#pragma once

#include <cstdint>

namespace convt::ptx {

// st.global.cg.v4.f32
__device__ __forceinline__ void store_global_cg(void* global, const float* four) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(four[0]), "f"(four[1]), "f"(four[2]),
               "f"(four[3])
               : "memory");
}

// ld.global.cg.v4.f32: of what others have stored before they counted.
__device__ __forceinline__ void load_global_cg(float (&four)[4], const void* global) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
               : "l"(global));
}

// atom.acq_rel.gpu.global.add.u32, of one: how many have counted before. Whoever sees another one's count sees what
// that one's CTA has stored before a barrier that both passed.
__device__ __forceinline__ uint32_t atomic_add_acq_rel(uint32_t* global) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(global) : "memory");
  return before;
}

}  // namespace convt::ptx
