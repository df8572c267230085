// Candidates of the thin engine for the gradients of depthwise layers, and their estimated times.
#include "plan/thin_depthwise.h"

#include <algorithm>

#include "plan/cost.h"
#include "plan/engines.h"
#include "plan/grad_weight.h"
#include "plan/plan.h"

namespace convt {
namespace {

// Rows of a warp: as many as leave enough warps for a large GPU, by the problem alone, for they decide the order of the
// weight's sums.
constexpr int64_t kEnoughWarps = 8192;
constexpr int32_t kFewestRows = 8;

int64_t num_slabs(const ConvTProblem& problem, const ThinDepthwiseLayout& layout) {
  return problem.batch * layout.chunks * layout.strips;
}

// On the reference GPU.
void estimate(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, const ThinDepthwiseLayout& layout,
              Plan* plan) {
  const DeviceInfo device = h200();
  const double taps = instance.kernel * instance.kernel, pixels = kDepthwiseColumns / instance.stride;
  const double kept = instance.kernel - instance.stride;
  // Warp instructions of a row of pixels: products, the edges of windows, loads, moves, the rest.
  const double row_slots = pixels * taps * 1.3 + instance.stride * (14 + 8 * kept) + 6 * kept + 30;
  const double rows = static_cast<double>(layout.num_warps) * (layout.rows + kept);
  // Half precision, measured: elements of 16 bits are packed and unpacked on their way.
  const bool of_weight = problem.direction == Direction::kGradWeight;
  const double fitted = element_bytes(problem.dtype) == 4 ? 1 : of_weight ? 3 : 2.2;
  plan->compute_us = fitted * rows * row_slots / 4 / 0.6 / device.num_sms / (device.clock_ghz * 1e3);
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double inputs = static_cast<double>(problem.batch) * problem.c_in * problem.h.in * problem.w.in;
  const double outputs = static_cast<double>(problem.batch) * problem.c_out * problem.h.out * problem.w.out;
  const double again = 1 + kept / instance.stride / layout.rows;
  const bool channels_last =
      problem.direction == Direction::kGradInput && problem.x_stride[1] == 1 && problem.x_stride[3] != 1;
  plan->memory_us = (bytes * (inputs + outputs * again) * (channels_last ? 12 : 1.25) +
                     2.0 * static_cast<double>(plan->workspace_bytes)) /
                    (device.copy_gb_per_s * 1e3);
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us) +
                      (of_weight                           ? 10
                       : is_exact(problem)                 ? 5
                       : element_bytes(problem.dtype) == 4 ? 12
                                                           : 16);
}

}  // namespace

bool make_thin_depthwise_layout(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, int32_t rows,
                                ThinDepthwiseLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  if (instance.dtype != problem.dtype || instance.direction != problem.direction) return false;
  if (problem.c_in != problem.groups || problem.c_out != problem.groups) return false;
  for (const Axis* axis : {&h, &w}) {
    if (axis->kernel != instance.kernel || axis->stride != instance.stride || axis->dilation != 1) return false;
  }
  // A window begins `padding` columns before a lane's own, which the lane before has.
  if (w.padding > instance.kernel - instance.stride) return false;
  layout->h = h;
  layout->w = w;
  layout->rows = rows;
  layout->chunks = ceil_div(h.in, rows);
  layout->strips = ceil_div(w.in, 32 * kDepthwiseColumns / instance.stride);
  layout->num_warps = problem.batch * problem.c_in * layout->chunks * layout->strips;
  layout->num_blocks = ceil_div(layout->num_warps, int64_t{kDepthwiseThreads / 32});
  if (problem.c_in > INT32_MAX || problem.batch > INT32_MAX || layout->num_blocks > INT32_MAX) return false;
  layout->channels = static_cast<int32_t>(problem.c_in);
  return true;
}

void add_thin_depthwise_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.batch == 0) return;
  for (int32_t index = 0; index < kNumThinDepthwiseInstances; ++index) {
    const ThinDepthwiseInstance& instance = kThinDepthwiseInstances[index];
    ThinDepthwiseLayout layout;
    int32_t rows = problem.h.in;
    if (!make_thin_depthwise_layout(problem, instance, rows, &layout)) continue;
    while (layout.num_warps < kEnoughWarps && rows > kFewestRows) {
      rows = ceil_div(rows, 2);
      if (!make_thin_depthwise_layout(problem, instance, rows, &layout)) break;
    }
    Plan plan{};
    plan.engine = Engine::kThin;
    plan.kernel = instance.name;
    plan.served_precision = Precision::kIeee;
    plan.threads = kDepthwiseThreads;
    plan.num_blocks = layout.num_blocks;
    plan.thin_depthwise = ThinDepthwisePlan{index, rows};
    if (problem.direction == Direction::kGradWeight) {
      plan.workspace_bytes = slab_bytes(problem, num_slabs(problem, layout));
      if (plan.workspace_bytes > kMaxWorkspaceBytes) continue;
    }
    estimate(problem, instance, layout, &plan);
    // The same order of candidates on every GPU, as in plan/grad_weight.cpp.
    auto rate = [](const DeviceInfo& gpu) { return multiply_adds_per_cycle(gpu, false) * gpu.num_sms * gpu.clock_ghz; };
    const double slower = rate(h200()) / rate(device);
    plan.compute_us *= slower;
    plan.memory_us *= slower;
    plan.estimate_us *= slower;
    plans->push_back(plan);
  }
}

}  // namespace convt
