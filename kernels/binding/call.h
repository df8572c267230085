// What the ops have in common: checks of tensors, results, and running one of a problem's plans.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>

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

// A tensor of uninitialized memory with the dtype and GPU of `like`.
torch::stable::Tensor empty_result(int64_t dimensions, const int64_t* sizes, const int64_t* strides,
                                   const torch::stable::Tensor& like);

// `bytes` of device memory from the caching allocator, at least one.
torch::stable::Tensor empty_workspace(int64_t bytes, int32_t device);

// Zero everywhere: what a gradient is when grad_output is empty.
void fill_zero(torch::stable::Tensor& tensor);

// Runs that one of the problem's candidate_plans(), 0 being the planner's choice, on the current stream of `device`,
// which must be the current device. The plan's workspace is the caching allocator's, or `kept`, which must be as long.
void run_plan(const ConvTProblem& problem, int64_t candidate, Pointers pointers, int32_t device,
              torch::stable::Tensor* kept = nullptr);

// candidate >= 0
void check_candidate(int64_t candidate);

}  // namespace convt::binding
