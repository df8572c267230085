// Shared by the ops: conversion of Python arguments to a checked ConvTProblem, the GPU's parameters from the CUDA
// runtime and PyTorch, checks of tensors, allocation of results, and the launch of a plan.
#pragma once

#include <cuda_runtime.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "binding/epilogue.h"
#include "launch/launch.h"
#include "plan/device.h"
#include "problem/problem.h"
#include "problem/shapes.h"

namespace convt::binding {

// Lists and numbers of a raw op: one number per spatial axis, two (H, W) or three (D, H, W). Error messages are for
// callers of raw ops: convt_ext.conv_transpose2d lets PyTorch check its arguments first.
struct ConvArguments {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> output_padding;
  int64_t groups;
  std::vector<int64_t> dilation;
  int64_t precision;  // enum Precision
  bool channels_last;
  // Per direction (forward, gradients of input and weight): index of the candidate that replaces the planner's choice,
  // 0 for none. It refers to a problem whose tensors are dense in the format of channels_last, except the tensors that
  // the forward pass reads.
  int64_t preferred[3] = {0, 0, 0};

  int dims() const { return static_cast<int>(stride.size()); }
};

// A forward problem of these sizes (dims + 2 each), without strides. Throws std::runtime_error with the argument's
// name.
ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* w_sizes, bool has_bias, DataType dtype,
                          const ConvArguments& arguments);

// The size of the input, or of the kernel, along a spatial axis, computed from the other sizes. Throws
// std::runtime_error if no size gives that output.
int64_t input_size_of(int index, int64_t out, int64_t kernel, const ConvArguments& arguments);
int64_t kernel_size_of(int index, int64_t out, int64_t in, const ConvArguments& arguments);

// GPU parameters for planning, queried once per device. Throws std::runtime_error.
const DeviceInfo& device_info(int64_t index);

// While an object exists, PyTorch's shim does not log stack traces of failures, because the caller handles them.
// (Before 2.13 the shim logs each failure as an error of about forty lines.) It raises PyTorch's log level for all
// threads.
class QuietFailures {
 public:
  QuietFailures();
  ~QuietFailures();
  QuietFailures(const QuietFailures&) = delete;
  QuietFailures& operator=(const QuietFailures&) = delete;

 private:
  int* level_;  // null if this PyTorch has no such variable
};

// PyTorch's current stream on the device.
cudaStream_t current_stream(int32_t index);

// Waits for that stream. Does not disturb a graph capture of another thread.
void wait_for_stream(int32_t index);

// `name`: the argument's name in error texts. Throws std::runtime_error, like all checks here.
DataType data_type_of(const char* name, const torch::stable::Tensor& tensor);

// Checks for a CUDA tensor with `dims` spatial axes. `shape` is the expected shape for the error text, with three.
void check_tensor(const char* name, const torch::stable::Tensor& tensor, int dims, const char* shape);

// A tensor's strides without its depth, if it has one, and the stride of the depth.
void read_strides(const torch::stable::Tensor& tensor, int64_t (&strides)[4], int64_t* plane);

// Checks that the tensor has the GPU and dtype of `first`.
void check_matches(const char* name, const torch::stable::Tensor& tensor, const char* first_name,
                   const torch::stable::Tensor& first);

// An uninitialized tensor with the dtype and GPU of `like`. Throws std::runtime_error if the allocation fails: "CUDA
// out of memory. Tried to allocate ...", or "CUDA error: ..." after an error of an earlier kernel.
torch::stable::Tensor empty_result(int64_t dimensions, const int64_t* sizes, const int64_t* strides,
                                   const torch::stable::Tensor& like);

// The same for dense sizes and strides of a problem, and a depth of `planes` if `dims` is 3.
torch::stable::Tensor empty_dense(int dims, const int64_t (&sizes)[4], const int64_t (&strides)[4], int64_t planes,
                                  int64_t plane, const torch::stable::Tensor& like);

// `bytes` of device memory from the caching allocator, at least one. Throws like empty_result().
torch::stable::Tensor empty_workspace(int64_t bytes, int32_t device);

// Zero-fills a tensor: the gradient if grad_output is empty.
void fill_zero(torch::stable::Tensor& tensor);

// Selects one of candidate_plans(): exactly `only`, for tests; otherwise `preferred`, or the planner's
// choice if it is 0.
struct Candidate {
  std::optional<int64_t> only = std::nullopt;
  int64_t preferred = 0;
};

// Runs the candidate on the current stream of `device`, which must be the current device. The caching allocator
// provides the workspace. If the allocation fails, a plan with a smaller workspace is used, unless that would change a
// documented accumulation order. `kept` replaces the part of the workspace for packed weights and must be large enough;
// then only the first plan is used. `epilogue`: steps on the result. Returns whether pointers.grad_bias is written.
// Throws like empty_result().
bool run_plan(const ConvTProblem& problem, const Candidate& candidate, Pointers pointers, int32_t device,
              torch::stable::Tensor* kept = nullptr, const Epilogue* epilogue = nullptr);

// The ops' directions for real tensors on a GPU: checks, result, plan, launch. `only`: run exactly that candidate.
// Throw std::runtime_error. For the gradient of the weight, `arguments.channels_last` is the weight's format, and
// `grad_bias` receives the gradient of the bias, in the same pass if the plan supports it.
torch::stable::Tensor run_forward(const torch::stable::Tensor& input, const torch::stable::Tensor& weight,
                                  const std::optional<torch::stable::Tensor>& bias, const ConvArguments& arguments,
                                  std::optional<int64_t> only = std::nullopt,
                                  const EpilogueArguments* epilogue = nullptr);
// If `is_packed`, `packed` already contains the packed weight. Otherwise the call fills it.
torch::stable::Tensor run_forward_packed(const torch::stable::Tensor& input, const torch::stable::Tensor& weight,
                                         const std::optional<torch::stable::Tensor>& bias,
                                         const ConvArguments& arguments, torch::stable::Tensor packed, bool is_packed,
                                         const EpilogueArguments* epilogue);
torch::stable::Tensor run_grad_input(const torch::stable::Tensor& grad_output, const torch::stable::Tensor& weight,
                                     const ConvArguments& arguments, std::optional<int64_t> only = std::nullopt);
torch::stable::Tensor run_grad_weight(const torch::stable::Tensor& grad_output, const torch::stable::Tensor& input,
                                      const ConvArguments& arguments, std::optional<int64_t> only = std::nullopt,
                                      torch::stable::Tensor* grad_bias = nullptr);
torch::stable::Tensor run_grad_bias(const torch::stable::Tensor& grad_output);

}  // namespace convt::binding
