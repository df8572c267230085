// A plan selects the kernel instance for a problem, its tile and its launch size. Plans are plain data: choose_plan()
// makes them, launch/ runs them, to_json() prints them.
// Must not know: torch, CUDA, any family.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plan/device.h"
#include "plan/tile.h"
#include "problem/problem.h"

namespace convt {

struct Family;  // plan/family.h

struct Plan {
  const char* kernel;  // the instance's name, a string constant
  Precision served_precision;  // may be stricter than the problem's
  int32_t threads;
  int32_t shared_bytes;  // dynamic shared memory
  int64_t num_blocks;  // CTAs of the grid
  int64_t workspace_bytes;  // device memory during the call
  int64_t packed_bytes;  // leading part of the workspace: packed weights, which a caller may keep

  // Plans depend on strides but not on addresses. These tensors must be aligned to 16 bytes, for tensor maps and wide
  // copies.
  bool result_on_vectors;
  bool source_on_vectors;
  bool weight_on_vectors;

  // On request, the kernel also sums grad_output by channel: the gradient of the bias.
  bool gives_grad_bias;

  AnyTile tile;
  const Family* family;  // set by the search

  double compute_us;  // estimates
  double memory_us;
  double estimate_us;
};

static_assert(sizeof(Plan) <= 256, "thousands are looked at for a problem");

// Output of a family's search. If `only_best`, families may omit plans whose estimates exceed `most_us`, the shortest
// estimate so far.
struct Candidates : std::vector<Plan> {
  bool only_best = false;
  double most_us = HUGE_VAL;

  void update_most() {
    if (!only_best) return;
    for (const Plan& plan : *this) most_us = std::min(most_us, plan.estimate_us);
  }
};

// The plan's tile. Throws std::logic_error if the plan belongs to a family with another type of tile.
template <typename T>
const T& tile_of(const Plan& plan) {
  const T* tile = plan.tile.get_if<T>();
  if (tile == nullptr) throw std::logic_error("convt_ext: the plan belongs to another kernel family");
  return *tile;
}
template <typename T>
T& tile_of(Plan& plan) {
  return const_cast<T&>(tile_of<T>(std::as_const(plan)));
}

// A plan of one instance without its launch size.
inline Plan begin_plan(const char* kernel, Precision served_precision, const AnyTile& tile) {
  Plan plan{};
  plan.kernel = kernel;
  plan.served_precision = served_precision;
  plan.tile = tile;
  return plan;
}

template <typename Layout>
void set_launch(const Layout& layout, Plan* plan) {
  plan->threads = layout.threads;
  plan->shared_bytes = layout.shared_bytes;
  plan->num_blocks = layout.num_blocks;
}

// All legal plans worth considering, the best estimate first. Never empty for a legal problem. Throws
// std::invalid_argument if no kernel supports the class (for example, a class that its dtype does not support).
std::vector<Plan> candidate_plans(const ConvTProblem& problem, const DeviceInfo& device);

// Indices into candidate_plans() of at most `most` plans to benchmark, the planner's choice first. Prefers short
// estimates and a variety of engines and kernels, because estimates of one kernel share their error.
std::vector<size_t> contenders(const std::vector<Plan>& candidates, size_t most);

// The first of candidate_plans().
Plan choose_plan(const ConvTProblem& problem, const DeviceInfo& device);

// Lower bound in microseconds: the larger of the bytes that must move / copy bandwidth, and useful operations / rate of
// the unit that does them. `rate_tflops` <= 0: the FFMA (or DFMA) rate.
double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops);

// Approximate lower end of the time that PyTorch 2.11 with cuDNN 9.19 takes for the problem on an H200, in
// microseconds: float32 as ieee, aten or tf32, half precision on tensor cores, float64. Gradients of aten and float64
// use the formula of the forward pass. 0 if the class is not modelled. If a plan's estimate is longer, a call without
// any opt-in should run in PyTorch.
double torch_us(const ConvTProblem& problem, const DeviceInfo& device);

// JSON object with the plan, its problem, device and estimates, and the other candidates.
std::string to_json(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
