// Copies of a few contiguous elements of any size into a slot of a ring. Must not know: slot contents.
#pragma once

#include <cstdint>

#include "pipeline/ring.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::pipeline {

#ifdef CONVT_HAS_WGMMA

// Copies kBytes from global to shared memory, or writes zeros. cp.async needs at least 4 bytes, so a half goes through
// a register.
template <int kBytes>
__device__ __forceinline__ void copy_vector(uint32_t shared, const void* global, bool copy) {
  if constexpr (kBytes == 2) {
    ptx::store_shared_16(shared, copy ? __ldg(static_cast<const unsigned short*>(global)) : 0);
  } else {
    ptx::cp_async_or_zero<kBytes>(shared, global, copy);
  }
}

// Copies unconditionally.
template <int kBytes>
__device__ __forceinline__ void copy_vector(uint32_t shared, const void* global) {
  if constexpr (kBytes == 2) {
    ptx::store_shared_16(shared, __ldg(static_cast<const unsigned short*>(global)));
  } else if constexpr (kBytes == 16) {
    ptx::cp_async_past_l1(shared, global);
  } else {
    ptx::cp_async<kBytes>(shared, global);
  }
}

// Arrives on the full barrier once this thread's copies of the stage have completed.
template <int kBytes>
__device__ __forceinline__ void producer_arrive(const Ring& ring) {
  if constexpr (kBytes == 2) {
    ptx::mbarrier_arrive(ring.full());
  } else {
    ptx::mbarrier_arrive_after_copies(ring.full());
  }
}

#endif

}  // namespace convt::pipeline
