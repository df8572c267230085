// Descriptions of tensors for copies by the copy engine (CUDA driver API, "Tensor Map Object Management"). Called by:
// strided_sm90a/launch.cpp, window.cpp, nhwc.cpp, scatter.cpp, upsample.cpp, patch_direct.cpp, patch_runs.cpp.
#pragma once

#include <cuda.h>

#include <stdexcept>

#include "plan/tensor_map.h"

namespace convt {

// CUDA refuses to make a tensor map. launch() completes the message: which kernel's, of which problem.
struct TensorMapError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws TensorMapError, or std::runtime_error where the driver cannot make any.
CUtensorMap make_tensor_map(DataType dtype, const TensorBox& tensor);

}  // namespace convt
