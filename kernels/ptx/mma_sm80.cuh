// Warp-level matrix products (PTX ISA, "Warp Level Matrix Instructions: mma"; sm_80 and later). D += A B, with 16 rows
// of A, 8 columns of B, 32 bytes of K and float32 accumulators. Fragments of lane 4 * g + t: A is word t of rows g and
// g + 8, then word t + 4 of both rows; B is words t and t + 4 of column g; D is columns 2 * t and 2 * t + 1 of row g,
// then of row g + 8.
#pragma once

#include <cstdint>

namespace convt::ptx {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define CONVT_HAS_MMA 1

// cvt.rna.tf32.f32: to the nearest TF32 number, ties away from zero.
__device__ __forceinline__ uint32_t nearest_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// mma.sync.aligned.m16n8k8 (tf32), m16n8k16 (f16, bf16)
#define CONVT_MMA(name, shape, type)                                                                    \
  __device__ __forceinline__ void name(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { \
    asm("mma.sync.aligned." shape ".row.col.f32." type "." type                                         \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                            \
  }

CONVT_MMA(mma_tf32, "m16n8k8", "tf32")
CONVT_MMA(mma_f16, "m16n8k16", "f16")
CONVT_MMA(mma_bf16, "m16n8k16", "bf16")

#undef CONVT_MMA

#endif

}  // namespace convt::ptx
