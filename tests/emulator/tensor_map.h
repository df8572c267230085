// Tensor maps of the emulator, and the copies of boxes that they describe.
#pragma once

#include <cstdint>

namespace emulator {

// The box that begins at these coordinates, innermost first; zeros for what is outside of the tensor.
void copy_box(uint32_t shared, const void* map, const int32_t* at, int rank, uint32_t barrier);

// What of the box exists.
void store_box(const void* map, const int32_t* at, int rank, uint32_t shared);

}  // namespace emulator
