// Descriptions of tensors for copies by the copy engine (CUDA driver API, "Tensor Map Object Management"). Called by:
// launch/strided.cpp, window.cpp, nhwc.cpp, scatter.cpp, upsample.cpp, patch_direct.cpp, patch_runs.cpp.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// A tensor of four dimensions, or `rank`, innermost dimension first, whose innermost elements are neighbours; strides
// in elements, of the others, are multiples of 16 bytes where there is more than one element, as is `data`. A copy
// takes a box of it, with zeros for what is outside.
struct TensorBox {
  const void* data;
  int64_t sizes[5];
  int64_t strides[4];
  int32_t box[5];  // elements
  int32_t rank = 4;
  int32_t step[5] = {1, 1, 1, 1, 1};  // from one of these to the next; of the innermost 1
  bool rounded = false;  // copies are float32 rounded to TF32, to the nearest, ties to even
  int32_t fetched_bytes = 256;  // what L2 fetches at once from memory: 64, 128 or 256
  int32_t swizzle_bytes = 0;  // 64 or 128, as ptx::tensor_swizzle(): the innermost dimension of a box is as long
};
// Throws std::runtime_error.
CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor);

}  // namespace convt
