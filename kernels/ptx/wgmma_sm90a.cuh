// Warpgroup matrix products of sm_90a (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
// D[64, N] = A[64, K] B[K, N], plus D where `add` is true; both operands in shared memory, K-major, without swizzle.
// D is in float32 registers: thread t of the warpgroup holds row t / 32 * 16 + t % 32 / 4 + 8 * h, column
// 8 * j + t % 4 * 2 + i as d[4 * j + 2 * h + i].
// The bodies exist only where the compiler's feature macro says that the target has the instructions.
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVT_HAS_WGMMA 1
#endif

namespace convt::ptx {

#ifdef CONVT_HAS_WGMMA

// A shared-memory operand ("Matrix Descriptor Format"): start address, and the distances in bytes of core matrices
// (8 rows of 16 bytes, 128 contiguous bytes) that are neighbours along K and along M or N. The start is the low bits of
// the low word, in units of 16 bytes, and never carries into the rest: moving an operand is one 32-bit addition.
struct MatrixDescriptor {
  uint32_t low, high;

  __device__ __forceinline__ static MatrixDescriptor of(uint32_t shared, uint32_t bytes_along_k,
                                                        uint32_t bytes_along_mn) {
    return {(shared >> 4) | ((bytes_along_k >> 4) << 16), bytes_along_mn >> 4};
  }
  __device__ __forceinline__ MatrixDescriptor moved(uint32_t units) const { return {low + units, high}; }
  __device__ __forceinline__ uint64_t bits() const { return uint64_t{high} << 32 | low; }
};

// wgmma.fence: registers and shared memory written before it may be used by the products after it.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group: at most kPending groups of products are still in flight after it.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void wgmma_tf32(float (&d)[16], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15"
      "}, "
      "%16, %17, add, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

__device__ __forceinline__ void wgmma_bf16(float (&d)[16], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15"
      "}, "
      "%16, %17, add, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

__device__ __forceinline__ void wgmma_f16(float (&d)[16], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15"
      "}, "
      "%16, %17, add, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

__device__ __forceinline__ void wgmma_tf32(float (&d)[32], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, "
      "%32, %33, add, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

__device__ __forceinline__ void wgmma_bf16(float (&d)[32], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, "
      "%32, %33, add, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

__device__ __forceinline__ void wgmma_f16(float (&d)[32], MatrixDescriptor a, MatrixDescriptor b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, "
      "%32, %33, add, 1, 1, 0, 0;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int32_t>(add)));
}

#endif

}  // namespace convt::ptx
