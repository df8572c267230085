// A plan: which kernel instance runs a problem, with which tile. Pure data, made by choose_plan(),
// obeyed by launch/, shown by to_json().
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
  int64_t workspace_bytes;  // device memory for the time of the call
  int64_t packed_bytes;  // the beginning of that, for the packed weights, which a caller may keep

  // Plans know strides, but not where a tensor begins: these must begin on 16 bytes, for tensor maps and wide copies.
  bool result_on_vectors;
  bool source_on_vectors;
  bool weight_on_vectors;

  // Its kernel adds up grad_output by channel as well, where that is asked for: the gradient of the bias.
  bool gives_grad_bias;

  AnyTile tile;
  const Family* family;  // set by the search that found the plan

  double compute_us;  // estimates
  double memory_us;
  double estimate_us;
};

static_assert(sizeof(Plan) <= 256, "thousands are looked at for a problem");

// What families add plans to. In a search for the best plan alone, they may leave out plans whose estimates are longer
// than `most_us`, the shortest one found so far.
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

// A plan of one instance, before its launch is known.
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

// Every legal plan that is worth considering, that with the best estimate first. Never
// empty for a legal problem. Throws std::invalid_argument for a problem no kernel serves (a class without a kernel for
// its dtype).
std::vector<Plan> candidate_plans(const ConvTProblem& problem, const DeviceInfo& device);

// The numbers of those among candidate_plans() that are worth a measurement, at most so many, the planner's choice
// first: what is estimated to be fast, rather of several engines and kernels than of one, since the estimates of one
// kernel err alike.
std::vector<size_t> contenders(const std::vector<Plan>& candidates, size_t most);

// The first of candidate_plans().
Plan choose_plan(const ConvTProblem& problem, const DeviceInfo& device);

// Lower bound in microseconds: bytes that must move / copy bandwidth, or useful operations / rate
// of the unit that does them, whichever is larger. `rate_tflops` <= 0: the FFMA (or DFMA) rate.
double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops);

// About the shortest time in which PyTorch 2.11 with cuDNN 9.19 was seen to run such a problem on an H200, in
// microseconds and in the problem's direction: float32 as ieee, aten or tf32, half precision on tensor cores, float64
// (for the gradients of aten and float64 the forward pass's formula stands in). 0 elsewhere, where nothing is known.
// Where a plan's estimate is longer, an unchanged user is better served by PyTorch.
double torch_us(const ConvTProblem& problem, const DeviceInfo& device);

// The plan, its problem, device, estimates and the losing candidates as one JSON object.
std::string to_json(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
