// Runs a plan: plan -> kernel, attributes, launch. Called by binding/.
// Must not know: torch, how the plan was chosen.
#pragma once

#include <cuda_runtime.h>

#include "plan/plan.h"
#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt {

// The one of the three tensors that problem.direction names is written, the others are only read.
struct Pointers {
  void* x;           // [batch, c_in, h_in, w_in], problem.x_stride
  void* w;           // [c_in, c_out / groups, k_h, k_w], problem.w_stride
  const void* bias;  // [c_out], contiguous, or null
  void* y;           // [batch, c_out, h_out, w_out], problem.y_stride
  void* packed;      // plan.packed_bytes, or null where that is 0
  void* workspace;   // the rest of plan.workspace_bytes, or null
  bool is_packed;    // `packed` already holds this weight as this plan packs it
  // [c_out], contiguous, or null: written beside the gradient of the weight, where the plan gives it.
  void* grad_bias;
  // Steps on the result that the plan's family can run, or null; of the forward pass alone.
  const epilogue::Program* steps;
};

// Launches a plan of one family.
using Launcher = void (*)(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// Defined in families/launch.cpp, which includes the engines.
Launcher launcher_of(const Family& family);

// Whether the tensors begin where the plan needs them to.
bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers);

// Queues the plan on `stream` of the current device. Throws std::runtime_error when CUDA refuses a launch.
void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

}  // namespace convt
