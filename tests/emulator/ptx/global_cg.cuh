// Emulates kernels/ptx/global_cg.cuh: CTAs run one after another.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

inline void store_global_cg(void* global, const float* four) { memcpy(global, four, 16); }
inline void load_global_cg(float (&four)[4], const void* global) { memcpy(four, global, 16); }
inline uint32_t atomic_add_acq_rel(uint32_t* global) { return (*global)++; }

}  // namespace convt::ptx
