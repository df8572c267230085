// Descriptions of tensors for copies by the copy engine (CUDA driver API, "Tensor Map Object Management"). Called by:
// launch/strided.cpp, window.cpp, scatter.cpp.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// A 4-dimensional tensor, innermost dimension first, whose innermost elements are neighbours; strides in elements, of
// the other three, are multiples of 16 bytes where there is more than one element, as is `data`. A copy takes a box of
// it, with zeros for what is outside.
struct TensorBox {
  const void* data;
  int64_t sizes[4];
  int64_t strides[3];
  int32_t box[4];
};
// Throws std::runtime_error.
CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor);

}  // namespace convt
