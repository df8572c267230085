// Communication between CTAs of a grid through global memory (PTX ISA, "Memory Consistency Model"): stores and loads in
// L2, and an atomic counter that orders them.
#pragma once

#include <cstdint>

namespace convt::ptx {

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
