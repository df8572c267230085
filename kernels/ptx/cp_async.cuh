// Asynchronous copies from global to shared memory (PTX ISA, "Data Movement: cp.async"). Before sm_80 the same calls
// copy through registers.
#pragma once

#include <cstdint>

#include "ptx/shared.cuh"

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define CONVT_HAS_CP_ASYNC 1
#endif

// cp.async.ca.shared.global: copies kBytes (4, 8 or 16).
template <int kBytes>
__device__ __forceinline__ void cp_async(uint32_t shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(kBytes));
#else
  const auto* source = static_cast<const uint32_t*>(global);
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) store_shared(shared + 4 * i, source[i]);
#endif
}

// cp.async with a source size: copies kBytes, or writes zeros without reading. sm_80 and newer.
template <int kBytes>
__device__ __forceinline__ void cp_async_or_zero(uint32_t shared, const void* global, bool copy) {
#ifdef CONVT_HAS_CP_ASYNC
  const int32_t bytes = copy ? kBytes : 0;
  if constexpr (kBytes == 16) {
    // .cg bypasses L1, because the data is not reused there.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(kBytes), "r"(bytes));
  }
#endif
}

// Four 4-byte copies at once. A copy reads its registers late. With separate registers it does not wait for the copy
// before.
__device__ __forceinline__ void cp_async_4_bytes_or_zero(const uint32_t (&shared)[4], const void* const (&global)[4],
                                                         const bool (&copy)[4]) {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile(
      "cp.async.ca.shared.global [%0], [%4], 4, %8;\n"
      "cp.async.ca.shared.global [%1], [%5], 4, %9;\n"
      "cp.async.ca.shared.global [%2], [%6], 4, %10;\n"
      "cp.async.ca.shared.global [%3], [%7], 4, %11;" ::"r"(shared[0]),
      "r"(shared[1]), "r"(shared[2]), "r"(shared[3]), "l"(global[0]), "l"(global[1]), "l"(global[2]), "l"(global[3]),
      "r"(copy[0] ? 4 : 0), "r"(copy[1] ? 4 : 0), "r"(copy[2] ? 4 : 0), "r"(copy[3] ? 4 : 0));
#endif
}

// cp.async of 4 bytes, four at once for the same reason.
template <int kCount>
__device__ __forceinline__ void cp_async_4_bytes(const uint32_t (&shared)[kCount],
                                                 const void* const (&global)[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
#ifdef CONVT_HAS_CP_ASYNC
    asm volatile(
        "cp.async.ca.shared.global [%0], [%4], 4;\n"
        "cp.async.ca.shared.global [%1], [%5], 4;\n"
        "cp.async.ca.shared.global [%2], [%6], 4;\n"
        "cp.async.ca.shared.global [%3], [%7], 4;" ::"r"(shared[i]),
        "r"(shared[i + 1]), "r"(shared[i + 2]), "r"(shared[i + 3]), "l"(global[i]), "l"(global[i + 1]),
        "l"(global[i + 2]), "l"(global[i + 3]));
#else
    for (int j = i; j < i + 4; ++j) cp_async<4>(shared[j], global[j]);
#endif
  }
}

// Copies only the elements with `copy` set.
template <int kCount>
__device__ __forceinline__ void cp_async_4_bytes_if(const uint32_t (&shared)[kCount],
                                                    const void* const (&global)[kCount], const bool (&copy)[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
#ifdef CONVT_HAS_CP_ASYNC
    asm volatile(
        "{\n"
        ".reg .pred copy<4>;\n"
        "setp.ne.b32 copy0, %8, 0;\n"
        "setp.ne.b32 copy1, %9, 0;\n"
        "setp.ne.b32 copy2, %10, 0;\n"
        "setp.ne.b32 copy3, %11, 0;\n"
        "@copy0 cp.async.ca.shared.global [%0], [%4], 4;\n"
        "@copy1 cp.async.ca.shared.global [%1], [%5], 4;\n"
        "@copy2 cp.async.ca.shared.global [%2], [%6], 4;\n"
        "@copy3 cp.async.ca.shared.global [%3], [%7], 4;\n"
        "}" ::"r"(shared[i]),
        "r"(shared[i + 1]), "r"(shared[i + 2]), "r"(shared[i + 3]), "l"(global[i]), "l"(global[i + 1]),
        "l"(global[i + 2]), "l"(global[i + 3]), "r"(static_cast<int32_t>(copy[i])),
        "r"(static_cast<int32_t>(copy[i + 1])), "r"(static_cast<int32_t>(copy[i + 2])),
        "r"(static_cast<int32_t>(copy[i + 3])));
#else
    for (int j = i; j < i + 4; ++j) {
      if (copy[j]) cp_async<4>(shared[j], global[j]);
    }
#endif
  }
}

// cp.async of 16 bytes that bypasses L1, because the data is not reused there.
__device__ __forceinline__ void cp_async_past_l1(uint32_t shared, const void* global) {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global));
#else
  cp_async<16>(shared, global);
#endif
}

// Copies `bytes` (even, below 16) from a multiple of 16 on, and reads nothing past them. One copy with a source size
// would suffice, but compute-sanitizer treats it as a read of 16 bytes.
__device__ __forceinline__ void cp_async_rest(uint32_t shared, const void* global, int32_t bytes) {
  const auto* source = static_cast<const char*>(global);
  if (bytes & 8) {
    cp_async<8>(shared, source);
    shared += 8, source += 8;
  }
  if (bytes & 4) {
    cp_async<4>(shared, source);
    shared += 4, source += 4;
  }
  if (bytes & 2) store_shared_16(shared, __ldg(reinterpret_cast<const unsigned short*>(source)));
}

// cp.async.commit_group
__device__ __forceinline__ void cp_async_commit() {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// cp.async.wait_group: waits until at most kPending of this thread's newest groups are in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// cp_async_wait() for a run-time number. Numbers above three count as three.
__device__ __forceinline__ void cp_async_wait_all_but(int32_t pending) {
  switch (pending) {
    case 0: return cp_async_wait<0>();
    case 1: return cp_async_wait<1>();
    case 2: return cp_async_wait<2>();
    default: return cp_async_wait<3>();
  }
}

}  // namespace convt::ptx
