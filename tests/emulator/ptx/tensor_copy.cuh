// Emulates kernels/ptx/tensor_copy.cuh. tensor_map.cpp defines the tensor maps.
#pragma once

#include <cstdint>

#include "emulator/tensor_map.h"

namespace convt::ptx {

template <size_t kRank>
void tensor_copy(uint32_t shared, const void* map, const int32_t (&at)[kRank], uint32_t barrier) {
  emulator::copy_box(shared, map, at, kRank, barrier);
}

inline void tensor_store(const void* map, const int32_t (&at)[4], uint32_t shared) {
  emulator::store_box(map, at, 4, shared);
}

}  // namespace convt::ptx
