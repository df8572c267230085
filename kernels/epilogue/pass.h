// An epilogue as a pass of its own, in place over a result: for kernels that cannot run its steps, and for operands
// whose strides only this one knows. Called by binding/epilogue.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt {

namespace epilogue {

// More steps than these are several passes.
constexpr int32_t kMostSteps = 8;

template <typename Number>
struct PassParams {
  void* result;
  int64_t begin, end;  // elements, in the order of memory
  int64_t size[3];     // of the three innermost axes in that order, the innermost last
  int32_t num_steps;
  bool finds_places;  // some step's operand is a channel's or broadcast
  bool exact;         // round to the result's type after every step, with PyTorch's formulas
  Step<Number> steps[kMostSteps];
  int64_t stride[kMostSteps][4];  // of operands that are tensors, along the result's axes in the order of memory
};

inline constexpr int kPassThreads = 256;
inline constexpr int kPassBytes = 16;  // of a thread's neighbours

// The kernel, as a host symbol. Of float64 `PassParams<double>` is its parameter, otherwise `PassParams<float>`.
const void* run_pass(DataType dtype);

}  // namespace epilogue

// A dense result, and steps whose operands are not null where they are tensors.
struct EpiloguePass {
  DataType dtype;
  bool channels_last;
  int64_t size[4];  // [batch, channels, h, w]
  bool exact;
  int32_t num_steps;
  const epilogue::Step<double>* steps;
  const int64_t (*stride)[4];  // of each step's tensor, 0 where it broadcasts
};

// Throws std::runtime_error when CUDA refuses a launch.
void launch_epilogue_pass(const EpiloguePass& pass, void* result, cudaStream_t stream);

}  // namespace convt
