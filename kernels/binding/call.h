// What the ops have in common: checks of tensors, results, and running one of a problem's plans.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>

#include "launch/launch.h"
#include "problem/problem.h"

namespace convt::binding {

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

// Runs the planner's choice, or that one of the problem's candidate_plans(), on the current stream of `device`, which
// must be the current device. The plan's workspace is the caching allocator's; where the choice's does not fit, a plan
// that needs less serves, unless that would break a promised order of sums. `kept` takes the place of the part for the
// packed weight, and has at least its length: then nothing but the choice serves. Throws as empty_result().
void run_plan(const ConvTProblem& problem, std::optional<int64_t> candidate, Pointers pointers, int32_t device,
              torch::stable::Tensor* kept = nullptr);

// candidate >= 0
void check_candidate(int64_t candidate);

}  // namespace convt::binding
