// Candidates of the thin engine for the gradient of the weight, with estimated times. Strips and chunks decide the bits
// of the result. They are therefore chosen for one reference GPU.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "problem/shapes.h"
#include "thin/grad_weight_layout.h"

namespace convt {
namespace {

// CTAs per SM. A thread may use the registers of an SM divided by kMaxThinWeightThreads.
int64_t resident_blocks(const DeviceInfo& device, const StripLayout& layout) {
  return resident_blocks(device, layout.shared_bytes, layout.threads, kMaxThinWeightThreads);
}

// Shared-memory wavefronts that read a warp's columns of grad_output for one tap.
double read_wavefronts(const Axis& w, DataType dtype) {
  if (element_bytes(dtype) == 2) return std::clamp(w.stride / 2.0, 1.0, 16.0);
  return greatest_common_divisor(w.stride, 32);
}

// Estimates times on the reference GPU.
void estimate(const ConvTProblem& problem, const ThinGradWeightInstance& instance, const StripLayout& layout,
              Plan* plan) {
  const DeviceInfo device = h200();
  const bool half = element_bytes(problem.dtype) == 2;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double warps = layout.threads / 32.0;
  const double resident = static_cast<double>(
      std::min<int64_t>(resident_blocks(device, layout), ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const double reads_x = instance.thread_ci, reads_gy = instance.thread_co * instance.thread_kw;
  // Warp instructions and wavefronts per 32 pixels.
  const double steps_of_row = layout.strip < 32 ? 1 : std::ceil(std::min(layout.strip, layout.w.in) / 32.0);
  const double border = std::min(1.0, 1.5 / steps_of_row / layout.strips);
  const double slots = reads_x * reads_gy + (half ? 2.2 : 1) * (reads_x + reads_gy) + instance.thread_ci +
                       instance.thread_co + 12 + border * (3 * instance.thread_kw + 10);
  const double wavefronts = reads_x + reads_gy * read_wavefronts(problem.w, problem.dtype);
  // Per stage: products, copies of rows, barriers.
  const double rows = layout.tile_units * layout.unit_rows;
  const double copies =
      layout.block_ci * rows + layout.block_co * std::min<double>(layout.slots, rows * layout.block_kh);
  const double staged =
      bytes * (layout.block_ci * rows * layout.strip + layout.block_co * layout.slots * (layout.columns + 8.0));
  const double steps = layout.tile_units * steps_of_row;
  const double issue = warps * (steps * slots + layout.tile_units * 45.0 + 260) / 4 + copies * 25 / 4;
  const double shared = warps * steps * wavefronts + staged / 128;
  const double stages = std::ceil(static_cast<double>(layout.units_per_chunk) / layout.tile_units);
  const double busy = std::min(0.85, 0.25 + 0.055 * resident * warps);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms / resident);
  const double cta_cycles =
      stages * std::max(issue, shared) / busy + 9.0 * instance.thread_ci * reads_gy * warps / 4 + 3000;
  constexpr double kFitted = 1.25;
  plan->compute_us = kFitted * waves * resident * cta_cycles / (device.clock_ghz * 1e3);

  const double input = bytes * input_elements(problem);
  const double rows_read = std::min(1.0, static_cast<double>(problem.h.kernel) / problem.h.stride) /
                           (problem.h.dilation > 1 && problem.h.stride > 1 ? layout.row_step : 1);
  const double output = bytes * output_elements(problem) * rows_read;
  const double l2 = static_cast<double>(layout.num_blocks) * stages * staged;
  plan->memory_us =
      std::max((input + output + 2.0 * static_cast<double>(plan->workspace_bytes)) / (device.copy_gb_per_s * 1e3),
               l2 / (device.copy_gb_per_s * 1.2e3));
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us) +
                      (is_exact(problem) ? 8 : 14);
}

// Completes a plan whose tile is chosen. Returns false if it is illegal.
bool complete(const ConvTProblem& problem, Plan* plan) {
  ThinGradWeightTile& tile = tile_of<ThinGradWeightTile>(*plan);
  StripLayout layout;
  if (!make_thin_grad_weight_layout(problem, tile, &layout)) return false;
  plan->threads = layout.threads;
  plan->shared_bytes = layout.shared_bytes;
  plan->num_blocks = layout.num_blocks;
  plan->workspace_bytes = slab_bytes(problem, layout.chunks);
  estimate(problem, kThinGradWeightInstances[tile.instance], layout, plan);
  return true;
}

// Whether `warps` warps share `total` evenly. False if fewer warps would have the same maximum share.
bool shares_evenly(int32_t total, int32_t warps) { return ceil_div(total, ceil_div(total, warps)) == warps; }

// Constraints of a search on the order of sums.
struct Order {
  int32_t strip;
  int32_t units_per_chunk;  // 0: any
};

// Tries stages as large as 1 to 4 resident CTAs per SM allow, with every pipeline depth.
void consider_stages(const ConvTProblem& problem, int32_t most_shared, const Order& order, Plan trial, Plan* best) {
  ThinGradWeightTile& tile = tile_of<ThinGradWeightTile>(trial);
  for (int32_t resident = 1; resident <= 4; ++resident) {
    const int32_t limit = std::min(most_shared, shared_room(h200(), resident));
    for (int32_t stages = kMinStripStages; stages <= kMaxStripStages; ++stages) {
      tile.stages = stages;
      StripLayout layout;
      for (tile.tile_units = 16; tile.tile_units > 0; tile.tile_units /= 2) {
        tile.units_per_chunk = 1;
        if (tile.tile_units / 2 < problem.h.in && make_thin_grad_weight_layout(problem, tile, &layout) &&
            layout.shared_bytes <= limit) {
          break;
        }
      }
      if (tile.tile_units == 0 || resident_blocks(h200(), layout) < resident) continue;
      const int64_t wave = int64_t{h200().num_sms} * resident_blocks(h200(), layout);
      const int64_t lane_pixels = ceil_div(std::min(layout.strip, layout.w.in), 32);
      for (const int32_t waves : {1, 2, 4}) {
        tile.units_per_chunk = order.units_per_chunk > 0 ? order.units_per_chunk
                                                         : units_of_chunk(problem, layout.num_units, lane_pixels,
                                                                          wave * waves / layout.passes);
        if (!complete(problem, &trial)) continue;
        if (best->kernel == nullptr || trial.estimate_us < best->estimate_us) *best = trial;
        if (order.units_per_chunk > 0) break;
      }
    }
  }
}

// Best tile of an instance within `most_shared` bytes.
Plan best_plan(const ConvTProblem& problem, int32_t index, int32_t most_shared, const Order& order) {
  const ThinGradWeightInstance& instance = kThinGradWeightInstances[index];
  const int32_t blocks_ci = static_cast<int32_t>(ceil_div(problem.c_in / problem.groups, int64_t{instance.thread_ci}));
  const int32_t blocks_co = static_cast<int32_t>(ceil_div(problem.c_out / problem.groups, int64_t{instance.thread_co}));
  const int32_t runs = ceil_div(problem.w.kernel, instance.thread_kw);
  constexpr int32_t kMostWarps = kMaxThinWeightThreads / 32;
  Plan best{}, trial = begin_plan(instance.name, Precision::kIeee, ThinGradWeightTile{});
  ThinGradWeightTile& tile = tile_of<ThinGradWeightTile>(trial);
  tile.instance = index;
  tile.strip = order.strip;
  for (int32_t warps_ci = 1; warps_ci <= std::min(blocks_ci, kMostWarps); ++warps_ci) {
    for (int32_t warps_co = 1; warps_co <= std::min(blocks_co, kMostWarps / warps_ci); ++warps_co) {
      for (int32_t taps_h = 1; taps_h <= std::min(problem.h.kernel, kMostWarps / warps_ci / warps_co); ++taps_h) {
        if (!shares_evenly(blocks_ci, warps_ci) || !shares_evenly(blocks_co, warps_co)) continue;
        if (!shares_evenly(problem.h.kernel, taps_h)) continue;
        for (const int32_t block_runs : {1, runs}) {
          if (int64_t{warps_ci} * warps_co * taps_h * block_runs > kMostWarps) break;
          tile.block_ci = warps_ci * instance.thread_ci;
          tile.block_co = warps_co * instance.thread_co;
          tile.block_kh = taps_h;
          tile.block_runs = block_runs;
          consider_stages(problem, most_shared, order, trial, &best);
          if (runs == 1) break;
        }
      }
    }
  }
  return best;
}

// Accumulators of an instance's warps, including padding.
int64_t padded_sums(const ConvTProblem& problem, const ThinGradWeightInstance& instance) {
  auto padded = [](int64_t size, int32_t block) { return ceil_div(size, int64_t{block}) * block; };
  return padded(problem.c_in / problem.groups, instance.thread_ci) *
         padded(problem.c_out / problem.groups, instance.thread_co) * padded(problem.w.kernel, instance.thread_kw);
}

}  // namespace

bool make_thin_grad_weight_layout(const ConvTProblem& problem, const ThinGradWeightTile& plan, StripLayout* layout) {
  const ThinGradWeightInstance& instance = kThinGradWeightInstances[plan.instance];
  if (plan.strip < 32 ? 32 % plan.strip != 0 : plan.strip % 32 != 0) return false;
  if (plan.block_ci % instance.thread_ci != 0 || plan.block_co % instance.thread_co != 0) return false;
  const StripTile tile = {
      plan.strip,    plan.strip < 32 ? 32 / plan.strip : 1,         plan.block_ci,        plan.block_co,
      plan.block_kh, int64_t{plan.block_runs} * instance.thread_kw, plan.units_per_chunk, plan.tile_units,
      plan.stages,
  };
  if (!lay_out_strips(problem, tile, layout)) return false;
  layout->block_runs = plan.block_runs;
  layout->warps_ci = plan.block_ci / instance.thread_ci;
  layout->warps_co = plan.block_co / instance.thread_co;
  const int64_t warps = int64_t{layout->warps_ci} * layout->warps_co * plan.block_runs * plan.block_kh;
  if (warps > kMaxThinWeightThreads / 32) return false;
  layout->threads = static_cast<int32_t>(32 * warps);
  // A row may start and end within a vector. Each pitch may need up to a vector of padding for congruence.
  const int64_t ends = vector_elements(problem.dtype) - 1, rows = int64_t{layout->tile_units} * layout->unit_rows;
  const int64_t gy_rows = layout->slots * (layout->columns + 3 * ends) + (layout->apart ? rows * ends : 0);
  const int64_t x_channel = rows * (layout->strip + 3 * ends) + 3 * ends;
  return lay_out_strip_stages(problem, x_channel * plan.block_ci, (gy_rows + ends) * plan.block_co, layout);
}

void add_thin_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradWeight) return;
  // Half-precision elements that are not contiguous in memory pass through registers one by one, which is slow.
  if (element_bytes(problem.dtype) == 2 && (problem.x_stride[3] != 1 || problem.y_stride[3] != 1)) return;
  // Not thin: more channel pairs than were measured. With stride 1, layers of many channels run faster with the simt
  // engine's outer products.
  constexpr int64_t kMostPairs = 2048, kManyChannels = 32;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  if (group_ci * group_co > kMostPairs) return;
  if (std::min(group_ci, group_co) >= kManyChannels && problem.h.stride == 1 && problem.w.stride == 1) return;
  std::vector<int32_t> strips;
  for (const int32_t strip : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    if (strip / 2 < problem.w.in && (strip >= problem.w.in || strip >= 32)) strips.push_back(strip);
    if (strip >= problem.w.in) break;
  }
  const DeviceInfo reference = h200();
  int64_t least_sums = INT64_MAX;
  for (const ThinGradWeightInstance& instance : kThinGradWeightInstances) {
    least_sums = std::min(least_sums, padded_sums(problem, instance));
  }
  for (int32_t index = 0; index < kNumThinGradWeightInstances; ++index) {
    const ThinGradWeightInstance& instance = kThinGradWeightInstances[index];
    if (instance.dtype != problem.dtype || 2 * padded_sums(problem, instance) > 3 * least_sums) continue;
    Plan best{};
    for (const int32_t strip : strips) {
      const Plan trial = best_plan(problem, index, reference.shared_per_block, Order{strip, 0});
      if (trial.kernel != nullptr && (best.kernel == nullptr || trial.estimate_us < best.estimate_us)) best = trial;
    }
    if (best.kernel == nullptr) continue;
    // The candidates and their order of sums are the same on every GPU: only instances whose tiles also fit the
    // smallest shared memory qualify.
    const Order order{tile_of<ThinGradWeightTile>(best).strip, tile_of<ThinGradWeightTile>(best).units_per_chunk};
    const double estimate_us = best.estimate_us;
    const Plan least = best_plan(problem, index, kGradWeightShared, order);
    if (least.kernel == nullptr) continue;
    if (best.shared_bytes > device.shared_per_block) {
      best = device.shared_per_block <= kGradWeightShared ? least
                                                          : best_plan(problem, index, device.shared_per_block, order);
    }
    // Measured in float32: 1.3 to 2.1 times as long as estimated if the input's columns are copied one by one.
    const double scattered = problem.dtype == DataType::kFloat32 && problem.x_stride[3] != 1 ? 1.4 : 1;
    best.estimate_us = estimate_us;
    estimate_in_proportion(proportion(device, false, scattered), &best);
    plans->push_back(best);
  }
}

}  // namespace convt
