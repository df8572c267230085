// CUDA's documented requirements on tensor maps, which launchers must meet. Used by the replacements of the driver: the
// recorder and the emulator.
#pragma once

#include <cuda.h>

#include <cstdint>

inline bool is_legal_map(cuuint32_t rank, const void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                         const cuuint32_t* box, const cuuint32_t* steps) {
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > (uint64_t{1} << 32)) return false;
    if (box[i] < 1 || box[i] > 256 || steps[i] < 1 || steps[i] > 8) return false;
    if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= (uint64_t{1} << 40))) return false;
  }
  return true;
}
