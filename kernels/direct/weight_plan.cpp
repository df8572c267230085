// Candidates of the thin engine for the gradient of the weight of small layers, and their estimated times. The
// estimates are for one reference GPU whatever the GPU is, as the candidate that is taken decides bits.
#include <algorithm>
#include <cstdlib>

#include "direct/instances.h"
#include "direct/weight_layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

// From a fit to 1032 measurements (docs/engines/thin.md): microseconds, then instructions and cycles of a warp.
constexpr double kLaunch = 5.2;
constexpr double kBatch = 1.15;      // latencies of memory
constexpr double kWarpSlots = 90;
constexpr double kBatchSlots = 340;
constexpr double kLineCycles = 1.1;  // of L1, for each line that a warp's elements lie in
constexpr double kMostBatches = 32, kMostReads = 1 << 17;  // of a thread, of all CTAs; more is not small

// Cache lines that a warp's elements lie in, `step` elements from each other.
double lines(int64_t step, DataType dtype) {
  const double bytes = static_cast<double>(std::abs(step)) * static_cast<double>(element_bytes(dtype));
  return std::clamp(31 * bytes / 128 + 1, 1.0, 32.0);
}

bool holds_offsets(const int64_t (&size)[4], const int64_t (&stride)[4]) {
  constexpr int64_t kMost = int64_t{1} << 30;
  int64_t furthest = 0;
  for (int i = 0; i < 4; ++i) {
    if (size[i] > kMost || std::abs(stride[i]) > kMost / std::max<int64_t>(1, size[i])) return false;
    furthest += size[i] * std::abs(stride[i]);
  }
  return furthest <= kMost;
}

}  // namespace

bool make_thin_direct_weight_layout(const ConvTProblem& problem, ThinDirectWeightLayout* layout) {
  *layout = ThinDirectWeightLayout{};
  if (problem.direction != Direction::kGradWeight) return false;
  const Axis &h = problem.h, &w = problem.w;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const int64_t x_size[4] = {problem.batch, problem.c_in, h.in, w.in};
  const int64_t gy_size[4] = {problem.batch, problem.c_out, h.out, w.out};
  if (!holds_offsets(x_size, problem.x_stride) || !holds_offsets(gy_size, problem.y_stride)) return false;
  // A tap is found from the run's first, which may lie before the image.
  const double run = static_cast<double>(kDirectWeightTaps) * w.dilation * std::abs(problem.y_stride[3]);
  if (run > int64_t{1} << 30) return false;
  const int64_t runs = ceil_div(w.kernel, kDirectWeightTaps);
  const int64_t pixels = problem.batch * h.in * w.in;
  layout->num_blocks = problem.c_in * group_co * h.kernel * runs;
  if (pixels < 1 || pixels > INT32_MAX / 2 || layout->num_blocks < 1 || layout->num_blocks > INT32_MAX) return false;
  layout->h = h;
  layout->w = w;
  for (int i = 0; i < 4; ++i) {
    layout->x_stride[i] = static_cast<int32_t>(problem.x_stride[i]);
    layout->gy_stride[i] = static_cast<int32_t>(problem.y_stride[i]);
  }
  std::copy_n(problem.w_stride, 4, layout->weight_stride);
  layout->group_ci = static_cast<int32_t>(group_ci);
  layout->pixels = static_cast<int32_t>(pixels);
  layout->by_runs = Divisor::of(static_cast<int32_t>(runs));
  layout->by_kernel_h = Divisor::of(h.kernel);
  layout->by_group_co = Divisor::of(static_cast<int32_t>(group_co));
  layout->by_group_ci = Divisor::of(static_cast<int32_t>(group_ci));
  layout->by_columns = Divisor::of(w.in);
  layout->by_rows = Divisor::of(h.in);
  return true;
}

void add_thin_direct_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  ThinDirectWeightLayout layout;
  if (!make_thin_direct_weight_layout(problem, &layout)) return;
  const DeviceInfo reference = h200();
  const double elements = input_elements(problem) + output_elements(problem);
  const int32_t taps = std::min(problem.w.kernel, kDirectWeightTaps);
  const double pixel_lines =
      lines(problem.x_stride[3], problem.dtype) + taps * lines(problem.y_stride[3] * problem.w.stride, problem.dtype);
  const double reads = kLineCycles * pixel_lines * layout.pixels / 32;  // cycles of a CTA's
  for (int32_t index = 0; index < kNumThinDirectInstances; ++index) {
    const ThinDirectInstance& instance = kThinDirectInstances[index];
    if (instance.dtype != problem.dtype || instance.direction != Direction::kGradWeight) continue;
    for (const int32_t threads : {128, kMostDirectWeightThreads}) {
      const double batches = ceil_div(layout.pixels, threads * kDirectWeightBatch);
      if (batches > kMostBatches || static_cast<double>(layout.num_blocks) * batches > kMostReads) continue;
      Plan plan = begin_plan(instance.name, Precision::kIeee, ThinDirectTile{});
      plan.threads = threads;
      plan.num_blocks = layout.num_blocks;
      plan.tile = ThinDirectTile{index, ceil_div(layout.pixels, threads)};
      const double issue = threads / 32 * (kWarpSlots + kBatchSlots * batches) / 4;
      const double cycles = static_cast<double>(layout.num_blocks) * std::max(issue, reads);
      plan.compute_us = cycles / (reference.num_sms * reference.clock_ghz * 1e3);
      plan.memory_us = static_cast<double>(element_bytes(problem.dtype)) * elements * 1e-3 / reference.copy_gb_per_s;
      plan.estimate_us = kLaunch + kBatch * batches + plan.compute_us + plan.memory_us;
      estimate_in_proportion(device, false, 1, &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
