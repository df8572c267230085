// How the patch engine's producers fill a stage of the source.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// kBytes from global to shared memory, or zeros. Copies are at least 4 bytes: a half goes through a register.
template <int kBytes>
__device__ __forceinline__ void copy_vector(uint32_t shared, const void* global, bool copy) {
  if constexpr (kBytes == 2) {
    ptx::store_shared_16(shared, copy ? __ldg(static_cast<const unsigned short*>(global)) : 0);
  } else {
    ptx::cp_async_or_zero<kBytes>(shared, global, copy);
  }
}

// The same where there is something.
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

// This thread's part of a stage is on its way, or there.
template <int kBytes>
__device__ __forceinline__ void announce(const Ring& ring) {
  if constexpr (kBytes == 2) {
    ptx::mbarrier_arrive(ring.full());
  } else {
    ptx::mbarrier_arrive_after_copies(ring.full());
  }
}

// The lanes that copy one row of a stage, kVectors vectors of kBytes, and how many rows a warp copies at a time.
template <int kBytes, int kVectors>
struct RowCopy {
  static constexpr int kLanes = kVectors < 32 ? kVectors : 32;
  static constexpr int kParts = kVectors / kLanes;
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kStep = kPatchLoaderWarps * kRows;  // of all warps together

  __device__ __forceinline__ static int32_t row(int32_t thread) { return thread / 32 * kRows + thread % 32 / kLanes; }
  __device__ __forceinline__ static int32_t lane(int32_t thread) { return thread % kLanes; }
};

#endif

}  // namespace convt::patch_sm90a
