// The pipelines that the warps of a CTA share.
#pragma once

#include <cstdint>

#include "ptx/mbarrier_sm90.cuh"

namespace convt::pipeline {

// A ring of slots in shared memory with two mbarriers each: full (producers arrive) and empty (consumers arrive).
class Ring {
 public:
  __device__ __forceinline__ Ring(uint32_t s_barriers, int32_t slots) : s_barriers_(s_barriers), slots_(slots) {}

  __device__ __forceinline__ uint32_t full() const { return s_barriers_ + 16 * slot_; }
  __device__ __forceinline__ uint32_t empty() const { return s_barriers_ + 16 * slot_ + 8; }
  __device__ __forceinline__ int32_t slot() const { return slot_; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void wait_full() const { ptx::mbarrier_wait(full(), parity_); }
  // All slots are empty in the first round.
  __device__ __forceinline__ void wait_empty() const { ptx::mbarrier_wait(empty(), parity_ ^ 1); }
#endif
  __device__ __forceinline__ void advance() {
    if (++slot_ == slots_) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }
  // Skips slots that other warps use.
  __device__ __forceinline__ void advance(int32_t slots) {
    for (slot_ += slots; slot_ >= slots_; slot_ -= slots_) parity_ ^= 1;
  }

 private:
  uint32_t s_barriers_;
  int32_t slots_;
  int32_t slot_ = 0;
  uint32_t parity_ = 0;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// One thread initializes the barriers of slots begin .. end - 1, with `full` and `empty` arrivals per phase. Rings may
// be adjacent. The caller runs fence_mbarrier_init() after the last of them.
__device__ __forceinline__ void init_slots(uint32_t s_barriers, int32_t begin, int32_t end, uint32_t full,
                                           uint32_t empty) {
#pragma unroll 1
  for (int32_t slot = begin; slot < end; ++slot) {
    ptx::mbarrier_init(s_barriers + 16 * slot, full);
    ptx::mbarrier_init(s_barriers + 16 * slot + 8, empty);
  }
}

// Each warp arrives once when it has finished reading a slot.
__device__ __forceinline__ void release(uint32_t empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
}
#endif

}  // namespace convt::pipeline
