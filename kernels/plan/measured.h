// Layers of networks, measured on an H200, for which the estimates choose a kernel that is not the fastest, or choose
// wrongly between our kernel and PyTorch's operator. They are data, in tuning/ (its README.md says what a row means):
// compiled into the binary as text, and read when the first plan for an H200 is asked for.
// Must not know: torch, CUDA, any family.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/device.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// What tells a measured problem from the others, as numbers: direction, precision, whether its tensors are dense in
// channels_last (else in NCHW), batch, c_in, c_out, groups, and of both axes in, out, kernel, stride, padding,
// dilation.
using MeasuredProblem = std::array<int64_t, 19>;

// One thing that was chosen for a plan: a field of its tile, or "threads", with its value in the words of to_json().
struct Knob {
  std::string_view name;
  std::string_view value;
};

struct MeasuredPlan {
  MeasuredProblem problem;
  std::string_view kernel;  // in bfloat16 where the row is of half precision: float16 takes the same time
  std::vector<Knob> knobs;
  double measured_us;  // its time, in which caches were cold
  double instead_us;  // that of the plan with the shortest estimate, in the same run
};

// PyTorch's time of such a problem, with cudnn.benchmark.
struct MeasuredTorch {
  MeasuredProblem problem;
  double torch_us;
};

// The rows of a table's text, whose lines are in ascending order of their problems. Throw std::invalid_argument, which
// names line and column, where a line is not a row or does not come behind the one before.
std::vector<MeasuredPlan> parse_measured_plans(std::string_view text);
std::vector<MeasuredTorch> parse_measured_torch(std::string_view text);

// Whether the row names this plan. Where it names several candidates, it means the one with the shortest estimate.
bool names(const MeasuredPlan& row, const Plan& plan);

// Puts the plan that a row names first, with its measured time as its estimate. `plans` are sorted by their estimates;
// nothing happens where no row is of this problem and GPU, or none of them is the row's.
void put_measured_first(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans);

// 0 where no row is of this problem and GPU.
double measured_torch_us(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
