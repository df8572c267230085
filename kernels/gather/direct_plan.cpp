// Candidates of the direct engine for small layers, with estimated times. The choice of a candidate decides the bits of
// the gradient of the weight, so that gradient is estimated for one reference GPU.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gather/layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

// Forward and gradient of the input, fitted to 410 measurements: microseconds, then warp instructions and cycles.
constexpr double kLaunch = 4.2;
constexpr double kBatch = 0.67;  // one memory latency per batch
constexpr double kResultSlots = 150;  // per result of a thread
constexpr double kBatchSlots = 260;
constexpr double kLineCycles = 0.8;  // of L1, per cache line of a warp's weights of a term
constexpr double kOddLineCycles = 0.48;  // if the weight stride is not a multiple of a line

// SM cycles to read a warp's weights of one term. If lanes are channels, each may read a separate line.
double weight_cycles(const TermsLayout& layout, DataType dtype) {
  constexpr double kLineBytes = 128;
  if (!layout.channels_last) return kLineCycles;
  const int64_t step = layout.by_group_co.value > 1 ? layout.weight_stride[1] : layout.weight_group_stride;
  const double bytes = static_cast<double>(std::abs(step)) * static_cast<double>(element_bytes(dtype));
  const double lanes = std::min(32, layout.by_digits[0].value);
  const double cycles = std::fmod(bytes, kLineBytes) == 0 ? kLineCycles : kOddLineCycles;
  return std::max(kLineCycles, cycles * lanes * std::min(1.0, bytes / kLineBytes));
}

// Gradient of the weight, fitted to 1032 measurements: microseconds, then warp instructions and cycles.
constexpr double kWeightLaunch = 5.2;
constexpr double kWeightBatch = 1.15;  // memory latencies per batch
constexpr double kWeightWarpSlots = 90;
constexpr double kWeightBatchSlots = 340;
constexpr double kWeightLineCycles = 1.1;  // of L1, per cache line of a warp's elements
constexpr double kWeightMostBatches = 32, kWeightMostReads = 1 << 17;  // per thread, over all CTAs

// Cache lines of a warp's elements with a stride of `step` elements.
double lines(int64_t step, DataType dtype) {
  const double bytes = static_cast<double>(std::abs(step)) * static_cast<double>(element_bytes(dtype));
  return std::clamp(31 * bytes / 128 + 1, 1.0, 32.0);
}

void add_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  ThinDirectWeightLayout layout;
  if (!make_thin_direct_weight_layout(problem, &layout)) return;
  const DeviceInfo reference = h200();
  const double elements = input_elements(problem) + output_elements(problem);
  const int32_t taps = std::min(problem.w.kernel, kDirectWeightTaps);
  const double pixel_lines =
      lines(problem.x_stride[3], problem.dtype) + taps * lines(problem.y_stride[3] * problem.w.stride, problem.dtype);
  const double reads = kWeightLineCycles * pixel_lines * layout.pixels / 32;  // cycles per CTA
  for (int32_t index = 0; index < kNumThinDirectInstances; ++index) {
    const ThinDirectInstance& instance = kThinDirectInstances[index];
    if (instance.dtype != problem.dtype || instance.direction != Direction::kGradWeight) continue;
    for (const int32_t threads : {128, kMostDirectWeightThreads}) {
      const double batches = ceil_div(layout.pixels, threads * kDirectWeightBatch);
      if (batches > kWeightMostBatches || static_cast<double>(layout.num_blocks) * batches > kWeightMostReads) continue;
      Plan plan = begin_plan(instance.name, Precision::kIeee, ThinDirectTile{});
      plan.threads = threads;
      plan.num_blocks = layout.num_blocks;
      plan.tile = ThinDirectTile{index, ceil_div(layout.pixels, threads)};
      const double issue = threads / 32 * (kWeightWarpSlots + kWeightBatchSlots * batches) / 4;
      const double cycles = static_cast<double>(layout.num_blocks) * std::max(issue, reads);
      plan.compute_us = cycles / (reference.num_sms * reference.clock_ghz * 1e3);
      plan.memory_us = static_cast<double>(element_bytes(problem.dtype)) * elements * 1e-3 / reference.copy_gb_per_s;
      plan.estimate_us = kWeightLaunch + kWeightBatch * batches + plan.compute_us + plan.memory_us;
      estimate_in_proportion(proportion(device, false), &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace

void add_thin_direct_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction == Direction::kGradWeight) return add_weight_plans(problem, device, plans);
  TermsLayout layout;
  if (!make_thin_direct_layout(problem, &layout)) return;
  const double batches = ceil_div(layout.terms, kDirectBatch);
  constexpr double kMostBatches = 128, kMostReads = 1 << 22;  // limits per result and in total
  if (batches > kMostBatches || layout.results * batches > kMostReads) return;
  for (int32_t index = 0; index < kNumThinDirectInstances; ++index) {
    const ThinDirectInstance& instance = kThinDirectInstances[index];
    if (instance.dtype != problem.dtype || instance.direction != problem.direction) continue;
    Plan plan = begin_plan(instance.name, Precision::kIeee, ThinDirectTile{});
    plan.threads = kDirectThreads;
    plan.num_blocks = layout.num_blocks;
    plan.tile = ThinDirectTile{index, layout.terms};
    // The maximum of instruction issue and weight reads.
    const double issue = (kResultSlots + kBatchSlots * batches) / 4;
    const double cycles = std::max(issue, layout.terms * weight_cycles(layout, problem.dtype));
    plan.compute_us = ceil_div(layout.results, 32) * cycles / (device.num_sms * device.clock_ghz * 1e3);
    const auto bytes = static_cast<double>(element_bytes(problem.dtype));
    const double elements =
        static_cast<double>(problem.batch) * (static_cast<double>(problem.c_in) * problem.h.in * problem.w.in +
                                              static_cast<double>(problem.c_out) * problem.h.out * problem.w.out);
    plan.memory_us = bytes * elements * 1e-3 / device.copy_gb_per_s;
    plan.estimate_us = kLaunch + kBatch * batches + plan.compute_us + plan.memory_us;
    plans->push_back(plan);
  }
}

}  // namespace convt
