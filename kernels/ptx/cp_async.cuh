// Asynchronous copies from global to shared memory (PTX ISA, "Data Movement: cp.async").
// Before sm_80 the same calls copy through registers, so that one source serves every architecture.
#pragma once

#include <cstdint>

#include "ptx/shared.cuh"

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define CONVT_HAS_CP_ASYNC 1
#endif

// cp.async.ca.shared.global: kBytes (4, 8 or 16) from global to shared.
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

// cp.async with a source size: kBytes from global to shared, or as many zeros, when nothing is read. sm_80 and newer.
template <int kBytes>
__device__ __forceinline__ void cp_async_or_zero(uint32_t shared, const void* global, bool copy) {
#ifdef CONVT_HAS_CP_ASYNC
  const int32_t bytes = copy ? kBytes : 0;
  if constexpr (kBytes == 16) {
    // .cg: past L1, where nobody looks for it again.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(kBytes), "r"(bytes));
  }
#endif
}

// cp.async.commit_group
__device__ __forceinline__ void cp_async_commit() {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// cp.async.wait_group: at most kPending of this thread's newest groups are still in flight after it.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
#ifdef CONVT_HAS_CP_ASYNC
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace convt::ptx
