// Emulates the part of kernels/ptx/mbarrier_sm90.cuh that the emulated kernels use.
#pragma once

#include <cstdint>

#include "emulator/asynchronous.h"
#include "emulator/device.h"
#include "ptx/bulk_copy.cuh"

namespace convt::ptx {

inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) { emulator::barrier_init(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint32_t barrier) { emulator::barrier_arrive(barrier); }
inline void mbarrier_expect(uint32_t barrier, uint32_t bytes) { emulator::barrier_arrive(barrier, bytes); }
inline void mbarrier_arrive_after_copies(uint32_t barrier) { emulator::arrive_after_copies(barrier); }
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) { emulator::barrier_wait(barrier, parity); }

inline void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  emulator::require((shared | bytes | reinterpret_cast<uintptr_t>(global)) % 16 == 0, "bulk copies are on 16 bytes");
  emulator::copy_for_barrier(barrier, bytes, [=] {
    for (uint32_t i = 0; i < bytes; i += 16) {
      memcpy(emulator::shared_bytes(shared + i, 16), static_cast<const char*>(global) + i, 16);
    }
  });
}

inline void named_barrier(int32_t id, int32_t threads) { emulator::meet_at(id, threads); }
inline void named_barrier_of_roles(int32_t id, int32_t threads) { emulator::meet_at(id, threads); }
inline void named_arrive(int32_t id, int32_t threads) { emulator::arrive_at(id, threads); }

// Elects lane 17: kernels must not assume lane 0.
inline bool elect_one() {
  __syncwarp();
  return threadIdx.x % 32 == 17;
}

inline void let_next_kernel_begin() {}
inline void wait_for_previous_kernel() {}
template <int kRegisters>
void setmaxnreg_inc() {}
template <int kRegisters>
void setmaxnreg_dec() {}

}  // namespace convt::ptx
