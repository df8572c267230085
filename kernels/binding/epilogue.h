// The epilogue of a call: lists and tensors from Python as steps whose operands are known to fit the result.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "epilogue/pass.h"
#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt::binding {

// What an op is given (the schema's words, library.cpp).
struct EpilogueArguments {
  const std::vector<int64_t>& operations;  // of a step: the operation, + 256 where its operand is a tensor
  const std::vector<double>& numbers;      // of a step: first, second
  const std::vector<torch::stable::Tensor>& tensors;
};

class Epilogue {
 public:
  // Of a result of these sizes, [batch, channels, h, w], and strides. Throws std::runtime_error where a list or a
  // tensor does not fit it. The tensors must live as long as this.
  Epilogue(const EpilogueArguments& arguments, const int64_t* size, const int64_t* stride, DataType dtype,
           int32_t device);

  // The first steps, as far as a kernel that fuses steps runs them in its order; none if it fuses none.
  epilogue::Program program(bool is_fused) const;

  // Runs the steps from `first` on over the dense result, on the current stream. `exact`: as PyTorch's separate
  // operations round.
  void run(int32_t first, bool exact, void* result, cudaStream_t stream) const;

 private:
  void add_step(int64_t code, double first, double second, const torch::stable::Tensor* tensor, int32_t device);
  // Whether a kernel can run the step behind the slots before `*slot`, which then is the one behind it.
  bool add_to(epilogue::Program* program, const epilogue::Step<double>& step, int* slot) const;
  epilogue::Operand operand_of(const std::array<int64_t, 4>& stride) const;

  DataType dtype_;
  std::array<int64_t, 4> size_, stride_;  // the result's
  std::vector<epilogue::Step<double>> steps_;
  std::vector<std::array<int64_t, 4>> strides_;  // of each step's tensor, 0 where it broadcasts
};

// In place, over a dense result that somebody else computed. Throws std::runtime_error.
void finish(torch::stable::Tensor result, bool exact, const std::vector<int64_t>& operations,
            const std::vector<double>& numbers, const std::vector<torch::stable::Tensor>& tensors);

}  // namespace convt::binding
