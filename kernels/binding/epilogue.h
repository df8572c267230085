// The epilogue of a call: lists and tensors from Python as steps whose operands are checked against the result.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "epilogue/pass.h"
#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt::binding {

// Arguments of an op, as defined in the schema (library.cpp).
struct EpilogueArguments {
  const std::vector<int64_t>& operations;  // per step: the operation, + 256 if its operand is a tensor
  const std::vector<double>& numbers;      // per step: first, second
  const std::vector<torch::stable::Tensor>& tensors;
};

class Epilogue {
 public:
  // `size` ([batch, channels, h, w]) and `stride` describe the dense result. `planes`: its depth, 0 in two dimensions;
  // the rows of all planes are rows of one image. Throws std::runtime_error if a list or a tensor does not fit it. The
  // tensors must outlive this object.
  Epilogue(const EpilogueArguments& arguments, const int64_t* size, const int64_t* stride, int64_t planes,
           DataType dtype, int32_t device);

  // The leading steps that a kernel with these fusions can run in its fixed order.
  epilogue::Program program(epilogue::Fuses fuses) const;

  // Runs the steps from `first` on over the dense result, on the current stream. `exact`: round like PyTorch's separate
  // operations.
  void run(int32_t first, bool exact, void* result, cudaStream_t stream) const;

 private:
  void add_step(int64_t code, double first, double second, const torch::stable::Tensor* tensor, int32_t device);
  // Whether a kernel can run the step at or after slot `*slot`. If so, sets `*slot` to the slot after it.
  bool add_to(epilogue::Program* program, const epilogue::Step<double>& step, epilogue::Fuses fuses, int* slot) const;
  // The strides of a tensor on the result's axes, 0 for those that it broadcasts along.
  std::array<int64_t, 4> strides_of(const torch::stable::Tensor& tensor) const;
  epilogue::Operand operand_of(const std::array<int64_t, 4>& stride) const;

  DataType dtype_;
  std::array<int64_t, 4> size_, stride_;  // the result's, with the rows of all planes
  int64_t planes_;
  std::vector<epilogue::Step<double>> steps_;
  std::vector<std::array<int64_t, 4>> strides_;  // strides of each step's tensor, 0 for broadcast axes
};

// Runs the steps in place over a dense result. Throws std::runtime_error.
void finish(torch::stable::Tensor result, bool exact, const std::vector<int64_t>& operations,
            const std::vector<double>& numbers, const std::vector<torch::stable::Tensor>& tensors);

}  // namespace convt::binding
