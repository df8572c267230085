// Runs a plan: plan -> kernel, attributes, launch. Called by binding/. Must not know: torch, how the plan was chosen.
#pragma once

#include <cuda_runtime.h>

#include "plan/plan.h"
#include "problem/epilogue.h"
#include "problem/problem.h"

namespace convt {

// The tensor that problem.direction names is written. The others are read.
struct Pointers {
  void* x;           // [batch, c_in, h_in, w_in], problem.x_stride
  void* w;           // [c_in, c_out / groups, k_h, k_w], problem.w_stride
  const void* bias;  // [c_out], contiguous, or null
  void* y;           // [batch, c_out, h_out, w_out], problem.y_stride
  void* packed;      // plan.packed_bytes, or null if that is 0
  void* workspace;   // the rest of plan.workspace_bytes, or null
  bool is_packed;    // `packed` already contains this weight, packed by this plan
  // [c_out], contiguous, or null: also written by the gradient of the weight, if the plan supports it.
  void* grad_bias;
  // Forward only: epilogue steps that the plan's family can fuse, or null.
  const epilogue::Program* steps;
};

// Launches a plan of one family.
using Launcher = void (*)(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

// Defined in families/launch.cpp, which includes the engines.
Launcher launcher_of(const Family& family);

// Whether the tensors have the alignment that the plan needs.
bool can_launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers);

// Launches the plan on `stream` of the current device. Throws std::runtime_error if CUDA rejects a launch.
void launch(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream);

}  // namespace convt
