// Tensor maps of the emulator, and copies of their boxes.
#pragma once

#include <cstdint>

namespace emulator {

// Copies the box at these coordinates (innermost first). Elements outside the tensor are zeros.
void copy_box(uint32_t shared, const void* map, const int32_t* at, int rank, uint32_t barrier);

// Stores the part of the box that is inside the tensor.
void store_box(const void* map, const int32_t* at, int rank, uint32_t shared);

}  // namespace emulator
