// Layers of networks for which the estimates choose a kernel that was measured not to be the fastest, or choose wrongly
// between our kernels and PyTorch's. The tables of kernels (measured_forward.cpp, measured_grad_input.cpp,
// measured_grad_weight.cpp) are written by tools/measure_plans.py, that of PyTorch's times (measured_torch.cpp) by
// tools/measured_torch.py. None is of the gradient of the weight in `ieee`: there the plan decides the bits, which are
// the same on every GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/device.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// What tells a plan from the other candidates of a problem; its first candidate where several have the same.
struct PlanSignature {
  const char* kernel;  // in bfloat16 where the row is of half precision: float16 takes the same time
  int32_t threads;
  int32_t shared_bytes;
  int64_t num_blocks;
  int64_t num_tiles;  // of engines whose CTAs walk over tiles, and rows of a tile where it has such; else 0
  int32_t tile_h;
};

// One row: a layer whose tensors are all dense in NCHW, or all in channels_last, on an H200.
struct MeasuredPlan {
  Precision precision;
  bool channels_last;
  int64_t sizes[4];  // batch, c_in, c_out, groups
  Axis h;
  Axis w;
  PlanSignature plan;
  double measured_us;  // its time, in which caches were cold
  double instead_us;  // that of the plan with the shortest estimate, in the same run
};

// PyTorch's time of such a layer, with cudnn.benchmark.
struct MeasuredTorch {
  Direction direction;
  Precision precision;
  bool channels_last;
  int64_t sizes[4];  // batch, c_in, c_out, groups
  Axis h;
  Axis w;
  double torch_us;
};

struct MeasuredTorchTable {
  const MeasuredTorch* begin;
  const MeasuredTorch* end;
};

MeasuredTorchTable measured_torch();

// 0 where no row is of this problem and GPU.
double measured_torch_us(const ConvTProblem& problem, const DeviceInfo& device);

struct MeasuredTable {
  const MeasuredPlan* begin;
  const MeasuredPlan* end;
};

MeasuredTable measured_forward();
MeasuredTable measured_grad_input();
MeasuredTable measured_grad_weight();

// Puts the plan that a row names first, with its measured time as its estimate. `plans` are sorted by their estimates;
// nothing happens where no row is of this problem and GPU, or none of them is the row's.
void put_measured_first(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

}  // namespace convt
