// The epilogue as a separate pass, in place over a result: for kernels that cannot fuse the steps, and for broadcast
// operands. Called by binding/epilogue.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "problem/epilogue.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"

namespace convt {

namespace epilogue {

// Steps per pass. Longer programs take several passes.
constexpr int32_t kMostSteps = 8;

template <typename Number>
struct PassParams {
  void* result;
  int64_t end;  // elements, in memory order
  // Sizes of the three inner axes in memory order, innermost last. The outermost axis and those before it count as
  // larger than any element's index.
  int64_t size[3];
  FastDivmod by_size[3];  // for results of less than 2^31 elements
  int32_t num_steps;
  bool finds_places;  // some operand is per-channel or broadcast
  bool exact;         // round to the result's type after every step, with PyTorch's formulas
  Step<Number> steps[kMostSteps];
  int64_t stride[kMostSteps][4];  // strides of tensor operands along the result's axes, in memory order
};

inline constexpr int kPassThreads = 256;
inline constexpr int kPassBytes = 16;   // contiguous bytes per vector
inline constexpr int kPassVectors = 4;  // per thread; all are loaded before the first is computed

// The kernel for results of less than 2^31 elements or of more, as a host symbol. Its parameter is `PassParams<double>`
// for float64, otherwise `PassParams<float>`.
const void* run_pass(DataType dtype, bool is_large);

}  // namespace epilogue

// A dense result and its steps. Tensor operands must not be null.
struct EpiloguePass {
  DataType dtype;
  bool channels_last;
  int64_t size[4];  // [batch, channels, h, w]
  bool exact;
  int32_t num_steps;
  const epilogue::Step<double>* steps;
  const int64_t (*stride)[4];  // strides of each step's tensor, 0 for broadcast axes
};

// Throws std::runtime_error when CUDA refuses a launch.
void launch_epilogue_pass(const EpiloguePass& pass, void* result, cudaStream_t stream);

}  // namespace convt
