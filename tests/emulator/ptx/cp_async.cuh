// The emulator's twin of kernels/ptx/cp_async.cuh: what the portable kernels use of it.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

template <int kBytes>
void cp_async_or_zero(uint32_t shared, const void* global, bool copy) {
  emulator::copy_later(shared, global, kBytes, !copy);
}

inline void cp_async_commit() { emulator::end_group_of_copies(); }

template <int kPending>
void cp_async_wait() {
  emulator::make_all_copies_but(kPending);
}

inline void cp_async_wait_all_but(int32_t pending) { emulator::make_all_copies_but(std::min(pending, 3)); }

}  // namespace convt::ptx
