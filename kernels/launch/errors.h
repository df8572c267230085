// Errors of CUDA in words: what a launch of ours did, and what a kernel before it left behind.
// Must not know: torch, plans.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace convt {

// Whether `status` tells of a kernel that ran before: such an error is found by whichever call comes next.
bool is_of_earlier_kernel(cudaError_t status);

// "CUDA error: ...", as PyTorch begins such messages; the Python side makes PyTorch's type of exception of it.
std::string words_of_earlier_kernel(cudaError_t status);

// Throws std::runtime_error with those words, or with `what` and CUDA's reason, unless `status` is success.
void check_launch(cudaError_t status, const std::string& what);

}  // namespace convt
