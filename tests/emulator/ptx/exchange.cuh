// The emulator's twin of kernels/ptx/exchange.cuh: CTAs run one after the other.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

inline void store_exchanged(void* global, const float* four) { memcpy(global, four, 16); }
inline void load_exchanged(float (&four)[4], const void* global) { memcpy(four, global, 16); }
inline uint32_t count_exchanged(uint32_t* global) { return (*global)++; }

}  // namespace convt::ptx
