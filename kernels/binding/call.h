// What the ops have in common: arguments from Python as a checked ConvTProblem, the GPU as seen through the CUDA
// runtime and PyTorch, checks of tensors, results, and running one of a problem's plans.
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

// Lists and numbers of a raw op. Messages about them are for its callers: convt_ext.conv_transpose2d has let PyTorch
// complain long before.
struct ConvArguments {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> output_padding;
  int64_t groups;
  std::vector<int64_t> dilation;
  int64_t precision;  // enum Precision
  bool channels_last;
  // Of the forward pass and the gradients of input and weight: the number of the candidate that is preferred to the
  // planner's choice, 0 for none. It is of a problem whose tensors are dense in the format that channels_last says, but
  // for those that the forward pass reads.
  int64_t preferred[3] = {0, 0, 0};
};

// A forward problem without strides, of these sizes, 4 each. Throws std::runtime_error naming the argument.
ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* w_sizes, bool has_bias, DataType dtype,
                          const ConvArguments& arguments);

// The size along axis 0 (H) or 1 (W) of the input, or of the kernel, from the two others'. Throws
// std::runtime_error where no size gives that output.
int64_t input_size_of(int index, int64_t out, int64_t kernel, const ConvArguments& arguments);
int64_t kernel_size_of(int index, int64_t out, int64_t in, const ConvArguments& arguments);

// Numbers of a GPU for planning, asked once per device. Throws std::runtime_error.
const DeviceInfo& device_info(int64_t index);

// Inside, PyTorch's shim prints no stack trace of what fails: the caller handles failures. (Before 2.13 the shim logs
// each one as an error, with some forty lines.) It raises the level of PyTorch's own log for all threads.
class QuietFailures {
 public:
  QuietFailures();
  ~QuietFailures();
  QuietFailures(const QuietFailures&) = delete;
  QuietFailures& operator=(const QuietFailures&) = delete;

 private:
  int* level_;  // null where this PyTorch has none
};

// PyTorch's current stream on that device.
cudaStream_t current_stream(int32_t index);

// Until that stream has done what is queued. Harmless to a graph that another thread is capturing.
void wait_for_stream(int32_t index);

// `name` says in messages which argument it is. Throws std::runtime_error, as all checks here do.
DataType data_type_of(const char* name, const torch::stable::Tensor& tensor);

// A 4-D CUDA tensor; `shape` says what was expected.
void check_tensor(const char* name, const torch::stable::Tensor& tensor, const char* shape);

// On the GPU of `first`, and of its dtype.
void check_matches(const char* name, const torch::stable::Tensor& tensor, const char* first_name,
                   const torch::stable::Tensor& first);

// A tensor of uninitialized memory with the dtype and GPU of `like`. Throws std::runtime_error where there is no
// memory: "CUDA out of memory. Tried to allocate ...", or "CUDA error: ..." where an earlier kernel's error is in the
// way.
torch::stable::Tensor empty_result(int64_t dimensions, const int64_t* sizes, const int64_t* strides,
                                   const torch::stable::Tensor& like);

// `bytes` of device memory from the caching allocator, at least one. Throws as empty_result().
torch::stable::Tensor empty_workspace(int64_t bytes, int32_t device);

// Zero everywhere: what a gradient is when grad_output is empty.
void fill_zero(torch::stable::Tensor& tensor);

// Which of a problem's candidate_plans() runs: exactly one of them, for tests and tuning, or else the planner's choice,
// or the one that is preferred to it.
struct Candidate {
  std::optional<int64_t> only = std::nullopt;
  int64_t preferred = 0;
};

// Runs that candidate on the current stream of `device`, which must be the current device. The plan's workspace is the
// caching allocator's; where the choice's does not fit, a plan that needs less serves, unless that would break a
// promised order of sums. `kept` takes the place of the part for the packed weight, and has at least its length: then
// nothing but the choice serves. `epilogue` are steps on the result. Whether pointers.grad_bias has been written.
// Throws as empty_result().
bool run_plan(const ConvTProblem& problem, const Candidate& candidate, Pointers pointers, int32_t device,
              torch::stable::Tensor* kept = nullptr, const Epilogue* epilogue = nullptr);

// candidate >= 0
void check_candidate(int64_t candidate);

// The ops' directions, of real tensors on a GPU: checks, result, plan, launch. `only`: that candidate and no other.
// Throw std::runtime_error. Of the gradient of the weight `arguments.channels_last` is the weight's format, and
// `grad_bias` becomes the gradient of the bias, from the same pass where the plan gives it.
torch::stable::Tensor run_forward(const torch::stable::Tensor& input, const torch::stable::Tensor& weight,
                                  const std::optional<torch::stable::Tensor>& bias, const ConvArguments& arguments,
                                  std::optional<int64_t> only = std::nullopt,
                                  const EpilogueArguments* epilogue = nullptr);
// `packed` contains the weight as the plan packs it if `is_packed`, else the call fills it.
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
