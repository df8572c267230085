// Emulates kernels/ptx/global.cuh. There are no caches, so prefetches do nothing.
#pragma once

#include <cstdint>

#include "emulator/device.h"

namespace convt::ptx {

inline uint32_t load_global_or_zero(const void* global, bool exists) {
  uint32_t word = 0;
  if (exists) memcpy(&word, global, 4);
  return word;
}
template <size_t kWords>
void load_global_or_zero(uint32_t (&words)[kWords], const void* global, bool exists) {
  emulator::require(!exists || reinterpret_cast<uintptr_t>(global) % sizeof(words) == 0, "a load is aligned");
  memset(words, 0, sizeof(words));
  if (exists) memcpy(words, global, sizeof(words));
}
inline uint32_t load_global_16_or_zero(const void* global, bool exists) {
  uint16_t half = 0;
  if (exists) memcpy(&half, global, 2);
  return half;
}
inline void prefetch_to_l2(const void*) {}

// CTAs run one after another.
inline void store_global_cg(void* global, const float* four) { memcpy(global, four, 16); }
inline void load_global_cg(float (&four)[4], const void* global) { memcpy(four, global, 16); }
inline uint32_t atomic_add_acq_rel(uint32_t* global) { return (*global)++; }

}  // namespace convt::ptx
