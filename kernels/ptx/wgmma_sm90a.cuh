// Warpgroup matrix products of sm_90a (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
// D[64, N] = A[64, K] B[K, N], plus D if `add` is true. Operands are in shared memory, K-major and without swizzle
// unless stated otherwise; A may also be in registers. D is in float32 registers: thread t of the warpgroup holds row t
// / 32 * 16 + t % 32 / 4 + 8 * h, column 8 * j + t % 4 * 2 + i as d[4 * j + 2 * h + i]. The bodies exist only if the
// compiler's feature macro reports the instructions.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "ptx/operand_layout.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVT_HAS_WGMMA 1
#endif

namespace convt::ptx {

#ifdef CONVT_HAS_WGMMA

// cvt.rn.tf32.f32: to the nearest TF32 number, ties to even. One instruction on sm_90, whereas cvt.rna is three.
__device__ __forceinline__ float round_tf32(float value) {
  uint32_t bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}

// wgmma.fence: orders earlier writes to registers and shared memory before later products.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: waits until at most kPending groups of products are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The registers of D in the instruction's text and as operands.
#define CONVT_D_TEXT_4 "{%0, %1, %2, %3}"
#define CONVT_D_TEXT_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define CONVT_D_TEXT_32                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define CONVT_D_TEXT_64                                                                                        \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "  \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define CONVT_D_TEXT_128                                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "   \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "    \
  "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, "    \
  "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "    \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "   \
  "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127}"
#define CONVT_D_TEXT_24                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23}"
#define CONVT_D_TEXT_40                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "  \
  "%36, %37, %38, %39}"
#define CONVT_D_TEXT_48                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "  \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}"
#define CONVT_D_4(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define CONVT_D_8(d, i)                                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define CONVT_D_16(d) CONVT_D_8(d, 0), CONVT_D_8(d, 8)
#define CONVT_D_32_AT(d, i) CONVT_D_8(d, i), CONVT_D_8(d, i + 8), CONVT_D_8(d, i + 16), CONVT_D_8(d, i + 24)
#define CONVT_D_32(d) CONVT_D_32_AT(d, 0)
#define CONVT_D_64(d) CONVT_D_32_AT(d, 0), CONVT_D_32_AT(d, 32)
#define CONVT_D_128(d) CONVT_D_64(d), CONVT_D_32_AT(d, 64), CONVT_D_32_AT(d, 96)

#define CONVT_D_24(d) CONVT_D_16(d), CONVT_D_8(d, 16)
#define CONVT_D_40(d) CONVT_D_32(d), CONVT_D_8(d, 32)
#define CONVT_D_48(d) CONVT_D_32(d), CONVT_D_8(d, 32), CONVT_D_8(d, 40)

// wgmma.mma_async of N = 2 * registers columns. `a_place`, `b_place` and `scale` are the numbers of its other operands.
#define CONVT_WGMMA(name, registers, shape, types, transposed, a_place, b_place, scale)                            \
  __device__ __forceinline__ void name(float (&d)[registers], MatrixDescriptor a, MatrixDescriptor b, bool add) {  \
    asm volatile(                                                                                                  \
        "{\n"                                                                                                      \
        ".reg .pred add;\n"                                                                                        \
        "setp.ne.b32 add, " scale                                                                                  \
        ", 0;\n"                                                                                                   \
        "wgmma.mma_async.sync.aligned." shape ".f32." types " " CONVT_D_TEXT_##registers ", " a_place ", " b_place \
                                                                                         ", add, 1, 1" transposed  \
                                                                                         ";\n"                     \
                                                                                         "}"                       \
        : CONVT_D_##registers(d)                                                                                   \
        : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));                                           \
  }

// Half-precision operands are K-major, except in functions named *_transposed.
CONVT_WGMMA(wgmma_tf32, 16, "m64n32k8", "tf32.tf32", "", "%16", "%17", "%18")
CONVT_WGMMA(wgmma_bf16, 16, "m64n32k16", "bf16.bf16", ", 0, 0", "%16", "%17", "%18")
CONVT_WGMMA(wgmma_f16, 16, "m64n32k16", "f16.f16", ", 0, 0", "%16", "%17", "%18")
CONVT_WGMMA(wgmma_tf32, 32, "m64n64k8", "tf32.tf32", "", "%32", "%33", "%34")
CONVT_WGMMA(wgmma_bf16, 32, "m64n64k16", "bf16.bf16", ", 0, 0", "%32", "%33", "%34")
CONVT_WGMMA(wgmma_f16, 32, "m64n64k16", "f16.f16", ", 0, 0", "%32", "%33", "%34")
CONVT_WGMMA(wgmma_tf32, 64, "m64n128k8", "tf32.tf32", "", "%64", "%65", "%66")
CONVT_WGMMA(wgmma_bf16, 64, "m64n128k16", "bf16.bf16", ", 0, 0", "%64", "%65", "%66")
CONVT_WGMMA(wgmma_f16, 64, "m64n128k16", "f16.f16", ", 0, 0", "%64", "%65", "%66")
CONVT_WGMMA(wgmma_tf32, 128, "m64n256k8", "tf32.tf32", "", "%128", "%129", "%130")
CONVT_WGMMA(wgmma_bf16, 128, "m64n256k16", "bf16.bf16", ", 0, 0", "%128", "%129", "%130")
CONVT_WGMMA(wgmma_f16, 128, "m64n256k16", "f16.f16", ", 0, 0", "%128", "%129", "%130")

CONVT_WGMMA(wgmma_tf32, 24, "m64n48k8", "tf32.tf32", "", "%24", "%25", "%26")
CONVT_WGMMA(wgmma_bf16, 24, "m64n48k16", "bf16.bf16", ", 0, 0", "%24", "%25", "%26")
CONVT_WGMMA(wgmma_f16, 24, "m64n48k16", "f16.f16", ", 0, 0", "%24", "%25", "%26")
CONVT_WGMMA(wgmma_tf32, 40, "m64n80k8", "tf32.tf32", "", "%40", "%41", "%42")
CONVT_WGMMA(wgmma_bf16, 40, "m64n80k16", "bf16.bf16", ", 0, 0", "%40", "%41", "%42")
CONVT_WGMMA(wgmma_f16, 40, "m64n80k16", "f16.f16", ", 0, 0", "%40", "%41", "%42")
CONVT_WGMMA(wgmma_tf32, 48, "m64n96k8", "tf32.tf32", "", "%48", "%49", "%50")
CONVT_WGMMA(wgmma_bf16, 48, "m64n96k16", "bf16.bf16", ", 0, 0", "%48", "%49", "%50")
CONVT_WGMMA(wgmma_f16, 48, "m64n96k16", "f16.f16", ", 0, 0", "%48", "%49", "%50")

CONVT_WGMMA(wgmma_bf16_transposed, 4, "m64n8k16", "bf16.bf16", ", 1, 1", "%4", "%5", "%6")
CONVT_WGMMA(wgmma_f16_transposed, 4, "m64n8k16", "f16.f16", ", 1, 1", "%4", "%5", "%6")
CONVT_WGMMA(wgmma_bf16_transposed, 32, "m64n64k16", "bf16.bf16", ", 1, 1", "%32", "%33", "%34")
CONVT_WGMMA(wgmma_f16_transposed, 32, "m64n64k16", "f16.f16", ", 1, 1", "%32", "%33", "%34")
CONVT_WGMMA(wgmma_bf16_transposed, 64, "m64n128k16", "bf16.bf16", ", 1, 1", "%64", "%65", "%66")
CONVT_WGMMA(wgmma_f16_transposed, 64, "m64n128k16", "f16.f16", ", 1, 1", "%64", "%65", "%66")

// Products with A in registers. A thread holds rows t / 32 * 16 + t % 32 / 4 and 8 further. Columns are t % 4 and 4
// further (TF32), or the pairs that start at t % 4 * 2 and 8 further (half precision). The order is both rows of the
// first columns, then of the second. The registers must not change before the products complete.
#define CONVT_WGMMA_OF_REGISTERS(name, registers, shape, types, transposed, a_places, b_place, scale)                 \
  __device__ __forceinline__ void name(float (&d)[registers], const uint32_t (&a)[4], MatrixDescriptor b, bool add) { \
    asm volatile(                                                                                                     \
        "{\n"                                                                                                         \
        ".reg .pred add;\n"                                                                                           \
        "setp.ne.b32 add, " scale                                                                                     \
        ", 0;\n"                                                                                                      \
        "wgmma.mma_async.sync.aligned." shape ".f32." types " " CONVT_D_TEXT_##registers ", {" a_places "}, " b_place \
                                                                                         ", add, 1, 1" transposed     \
                                                                                         ";\n"                        \
                                                                                         "}"                          \
        : CONVT_D_##registers(d)                                                                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "r"(static_cast<int32_t>(add)));                 \
  }

CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 16, "m64n32k8", "tf32.tf32", "", "%16, %17, %18, %19", "%20", "%21")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 16, "m64n32k16", "bf16.bf16", ", 0", "%16, %17, %18, %19", "%20", "%21")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 16, "m64n32k16", "f16.f16", ", 0", "%16, %17, %18, %19", "%20", "%21")
CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 32, "m64n64k8", "tf32.tf32", "", "%32, %33, %34, %35", "%36", "%37")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 32, "m64n64k16", "bf16.bf16", ", 0", "%32, %33, %34, %35", "%36", "%37")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 32, "m64n64k16", "f16.f16", ", 0", "%32, %33, %34, %35", "%36", "%37")
CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 64, "m64n128k8", "tf32.tf32", "", "%64, %65, %66, %67", "%68", "%69")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 64, "m64n128k16", "bf16.bf16", ", 0", "%64, %65, %66, %67", "%68", "%69")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 64, "m64n128k16", "f16.f16", ", 0", "%64, %65, %66, %67", "%68", "%69")

CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 128, "m64n256k8", "tf32.tf32", "", "%128, %129, %130, %131", "%132", "%133")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 128, "m64n256k16", "bf16.bf16", ", 0", "%128, %129, %130, %131", "%132", "%133")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 128, "m64n256k16", "f16.f16", ", 0", "%128, %129, %130, %131", "%132", "%133")

CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 24, "m64n48k8", "tf32.tf32", "", "%24, %25, %26, %27", "%28", "%29")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 24, "m64n48k16", "bf16.bf16", ", 0", "%24, %25, %26, %27", "%28", "%29")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 24, "m64n48k16", "f16.f16", ", 0", "%24, %25, %26, %27", "%28", "%29")
CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 40, "m64n80k8", "tf32.tf32", "", "%40, %41, %42, %43", "%44", "%45")
CONVT_WGMMA_OF_REGISTERS(wgmma_tf32, 48, "m64n96k8", "tf32.tf32", "", "%48, %49, %50, %51", "%52", "%53")
CONVT_WGMMA_OF_REGISTERS(wgmma_bf16, 48, "m64n96k16", "bf16.bf16", ", 0", "%48, %49, %50, %51", "%52", "%53")
CONVT_WGMMA_OF_REGISTERS(wgmma_f16, 48, "m64n96k16", "f16.f16", ", 0", "%48, %49, %50, %51", "%52", "%53")

// Writes a register of A at this point of the program and not earlier, when products in flight may still read it.
__device__ __forceinline__ void write_fragment(uint32_t& fragment, uint32_t word) {
  asm volatile("mov.b32 %0, %1;" : "=r"(fragment) : "r"(word) : "memory");
}

// The same for a number rounded to TF32, and for the lower or the upper halves of two words.
__device__ __forceinline__ void write_fragment_tf32(uint32_t& fragment, uint32_t word) {
  asm volatile("cvt.rn.tf32.f32 %0, %1;" : "=r"(fragment) : "f"(__uint_as_float(word)) : "memory");
}
__device__ __forceinline__ void write_fragment_halves(uint32_t& fragment, uint32_t first, uint32_t second, bool upper) {
  asm volatile("prmt.b32 %0, %1, %2, %3;"
               : "=r"(fragment)
               : "r"(first), "r"(second), "r"(upper ? 0x7632 : 0x5410)
               : "memory");
}

// The same for the remainder of a float32 number after subtraction of its `high` term.
__device__ __forceinline__ void write_fragment_rest(uint32_t& fragment, uint32_t word, uint32_t high) {
  asm volatile("sub.rn.f32 %0, %1, %2;"
               : "=r"(fragment)
               : "f"(__uint_as_float(word)), "f"(__uint_as_float(high))
               : "memory");
}

// Writes both parts of a number as the sum of two TF32 numbers: its upper bits, and the rounded rest. The rest of an
// infinite number is a NaN. Two instructions cut off the lower bits: if both numbers came from the same instruction,
// ptxas would treat them as one value and copy it from fragment to fragment.
__device__ __forceinline__ void write_fragments_split(uint32_t& high, uint32_t& low, uint32_t word, bool by_rounding) {
  if (by_rounding) {
    asm volatile("cvt.rz.tf32.f32 %0, %1;" : "=r"(high) : "f"(__uint_as_float(word)) : "memory");
  } else {
    asm volatile("and.b32 %0, %1, 0xffffe000;" : "=r"(high) : "r"(word) : "memory");
  }
  write_fragment_tf32(low, __float_as_uint(__fsub_rn(__uint_as_float(word), __uint_as_float(high))));
}

// Keeps a register of A unchanged up to this point, after the wait for the products that read it.
__device__ __forceinline__ void fence_fragment(uint32_t& fragment) { asm volatile("" : "+r"(fragment)::"memory"); }
// Prevents reads of an accumulator before this point, after the wait for its products.
__device__ __forceinline__ void fence_accumulator(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

#undef CONVT_WGMMA
#undef CONVT_WGMMA_OF_REGISTERS
#undef CONVT_D_TEXT_16
#undef CONVT_D_TEXT_24
#undef CONVT_D_TEXT_32
#undef CONVT_D_TEXT_40
#undef CONVT_D_TEXT_48
#undef CONVT_D_TEXT_64
#undef CONVT_D_TEXT_128
#undef CONVT_D_8
#undef CONVT_D_16
#undef CONVT_D_32_AT
#undef CONVT_D_24
#undef CONVT_D_32
#undef CONVT_D_40
#undef CONVT_D_48
#undef CONVT_D_64
#undef CONVT_D_128

// One step of K, 8 or 16 elements, selected by element type: float means TF32. `a` is a descriptor or four registers.
template <typename Element, int kSums, typename First>
__device__ __forceinline__ void wgmma(float (&d)[kSums], const First& a, const MatrixDescriptor& b, bool add) {
  if constexpr (std::is_same_v<Element, float>) {
    wgmma_tf32(d, a, b, add);
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    wgmma_bf16(d, a, b, add);
  } else {
    wgmma_f16(d, a, b, add);
  }
}

// A half-precision product with both operands in the layout of MatrixDescriptor::of_transposed_rows().
template <typename Element, int kSums>
__device__ __forceinline__ void wgmma_transposed(float (&d)[kSums], const MatrixDescriptor& a,
                                                 const MatrixDescriptor& b, bool add) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    wgmma_bf16_transposed(d, a, b, add);
  } else {
    wgmma_f16_transposed(d, a, b, add);
  }
}

#endif

}  // namespace convt::ptx
