// Bulk copies from shared to global memory (PTX ISA, "Data Movement: cp.async.bulk"; sm_90 and later).
#pragma once

#include <cstdint>

namespace convt::ptx {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CONVT_HAS_BULK_COPY 1
#endif

#ifdef CONVT_HAS_BULK_COPY

// cp.async.bulk.global.shared::cta.bulk_group. Addresses and bytes must be multiples of 16.
__device__ __forceinline__ void bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}

// cp.async.bulk.commit_group
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// cp.async.bulk.wait_group.read: waits until this thread's copies, except those of the newest kPending groups, have
// read shared memory.
template <int kPending = 0>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// fence.proxy.async.shared::cta: makes this thread's writes to shared memory visible to later bulk copies and wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif

}  // namespace convt::ptx
