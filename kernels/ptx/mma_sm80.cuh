// Matrix products of a warp (PTX ISA, "Warp Level Matrix Instructions: mma"; sm_80 and later). D += A B with A of 16
// rows, B of 8 columns, 32 bytes of K, sums in float32. Of lane 4 * g + t, A is {row g, row g + 8} of word t, then of
// word t + 4; B words t and t + 4 of column g; D columns 2 * t and 2 * t + 1 of row g, then of row g + 8.
#pragma once

#include <cstdint>

namespace convt::ptx {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define CONVT_HAS_MMA 1

// cvt.rna.tf32.f32: the nearest TF32 number, of two equally near ones that further from zero.
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
