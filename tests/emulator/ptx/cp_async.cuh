// Emulates the part of kernels/ptx/cp_async.cuh that the emulated kernels use.
#pragma once

#include <cstdint>

#include "emulator/device.h"
#include "ptx/shared.cuh"

namespace convt::ptx {

template <int kBytes>
void cp_async(uint32_t shared, const void* global) {
  emulator::copy_later(shared, global, kBytes, false);
}
inline void cp_async_past_l1(uint32_t shared, const void* global) { emulator::copy_later(shared, global, 16, false); }

inline void cp_async_or_zero_4(const uint32_t (&shared)[4], const void* const (&global)[4], const bool (&copy)[4]) {
  for (int i = 0; i < 4; ++i) emulator::copy_later(shared[i], global[i], 16, !copy[i]);
}

inline void cp_async_4_bytes_or_zero(const uint32_t (&shared)[4], const void* const (&global)[4],
                                     const bool (&copy)[4]) {
  for (int i = 0; i < 4; ++i) emulator::copy_later(shared[i], global[i], 4, !copy[i]);
}

template <int kBytes>
void cp_async_or_zero(uint32_t shared, const void* global, bool copy) {
  emulator::copy_later(shared, global, kBytes, !copy);
}

template <int kCount>
void cp_async_4_bytes(const uint32_t (&shared)[kCount], const void* const (&global)[kCount]) {
  for (int i = 0; i < kCount; ++i) emulator::copy_later(shared[i], global[i], 4, false);
}

template <int kCount>
void cp_async_4_bytes_if(const uint32_t (&shared)[kCount], const void* const (&global)[kCount],
                         const bool (&copy)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    if (copy[i]) emulator::copy_later(shared[i], global[i], 4, false);
  }
}

inline void cp_async_rest(uint32_t shared, const void* global, int32_t bytes) {
  const auto* source = static_cast<const char*>(global);
  for (const int32_t size : {8, 4}) {
    if ((bytes & size) == 0) continue;
    emulator::copy_later(shared, source, size, false);
    shared += size, source += size;
  }
  if (bytes & 2) memcpy(emulator::shared_bytes(shared, 2), source, 2);
}

inline void cp_async_commit() { emulator::end_group_of_copies(); }

template <int kPending>
void cp_async_wait() {
  emulator::make_all_copies_but(kPending);
}

inline void cp_async_wait_all_but(int32_t pending) { emulator::make_all_copies_but(std::min(pending, 3)); }

}  // namespace convt::ptx
