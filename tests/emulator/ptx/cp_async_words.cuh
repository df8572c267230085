// The emulator's twin of kernels/ptx/cp_async_words.cuh.
#pragma once

#include <cstdint>

#include "emulator/device.h"
#include "ptx/shared.cuh"

namespace convt::ptx {

inline void cp_async_words(const uint32_t (&shared)[4], const void* const (&global)[4], const int32_t (&bytes)[4]) {
  for (int i = 0; i < 4; ++i) {
    if (bytes[i] > 0) emulator::copy_later(shared[i], global[i], bytes[i], false);
    if (bytes[i] < 4) emulator::copy_later(shared[i] + bytes[i], nullptr, 4 - bytes[i], true);
  }
}

}  // namespace convt::ptx
