// Forward candidates of the thin engine, with estimated times.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "thin/instances.h"
#include "thin/layout.h"

namespace convt {
namespace {

// CTAs per SM; a thread has 128 registers.
int64_t resident_blocks(const DeviceInfo& device, const ThinLayout& layout) {
  return resident_blocks(device, layout.shared_bytes, layout.threads, 512);
}

// Fraction of (tap, phase with taps) pairs whose tap exists in the weight.
double tap_share(const PhaseAxis& axis) {
  double taps = 0;
  for (int32_t phase = 0; phase < axis.out_stride; ++phase) {
    if ((axis.filled >> phase & 1) == 0) continue;
    for (int32_t t = 0; t < axis.num_taps; ++t) taps += weight_tap(axis, t, phase) >= 0 ? 1 : 0;
  }
  return taps / (axis.num_taps * axis.num_filled);
}

// Estimates from warp instructions, counted by the profiler and attributed to the parameters they depend on. `active`:
// fraction of products whose tap exists in the weight.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ThinInstance& instance,
              const ThinLayout& layout, double active, Plan* plan) {
  const PhaseAxis &h = layout.h, &w = layout.w;
  const double outputs = instance.outputs, positions = instance.positions, warps = layout.threads / 32;
  const bool half = element_bytes(problem.dtype) == 2;
  const double steps = static_cast<double>(layout.group_ci) * layout.taps;
  // Interior tiles skip the border checks. Small images have only border tiles.
  const double border =
      std::min(1.0, (h.num_taps > 1 ? 1.5 / layout.tiles_h : 0) + (w.num_taps > 1 ? 1.5 / layout.tiles_w : 0));
  const double step_slots = outputs * positions * active + positions + outputs / 4 + 6 + border * 1.3 * positions +
                            (half ? 1.2 * positions : 0) + (layout.all_taps ? 0 : outputs);
  const double vector = static_cast<double>(layout.vector_bytes) / element_bytes(problem.dtype);
  const double copies =
      static_cast<double>(layout.group_ci) * layout.block_groups * layout.rows * layout.columns / vector;
  const bool by_channels = !half && layout.load_mode == ThinLoad::kChannels;
  const double load_slots = copies / layout.threads *
                                (layout.load_mode == ThinLoad::kVectors ? 8
                                 : half                                 ? 20
                                 : by_channels                          ? 45
                                                                        : 14) +
                            170 * std::ceil(static_cast<double>(layout.group_ci) / layout.chunk_ci);
  const double channels = layout.block_co * layout.block_groups;
  const double phases_h = layout.phase_splits > 1 ? 1 : h.out_stride;
  const double filled_h = layout.phase_splits > 1 ? 1 : h.num_filled;
  const double phase_elems = channels * layout.tile_h * layout.tile_w / layout.threads;  // per phase and thread
  const double empty_slots = 7 * phase_elems * (phases_h * w.out_stride - filled_h * w.num_filled);
  const double runs = layout.channels_last_result
                          ? channels * layout.tile_h * phases_h * layout.tile_w * w.out_stride / layout.store_vector
                          : channels * layout.tile_h * phases_h;
  const double store_slots = layout.channels_last_result
                                 ? runs / layout.threads * 14
                                 : runs / warps * 12 + (layout.aligned_runs ? 0 : runs * 16 / layout.threads * 70);
  const double conflicts = layout.channels_last_result ? 3 : 1;
  const double tile_slots =
      420 + steps * step_slots + load_slots + outputs * positions * 4.5 * conflicts + empty_slots + store_slots;
  const double empty_tile_slots = 150 + store_slots;
  const double filled_passes = layout.phase_splits > 1 ? static_cast<double>(h.num_filled) / h.out_stride : 1;
  const double weight_slots = steps * layout.outputs * layout.block_groups / layout.threads * 12 +
                              layout.taps * layout.outputs * 90.0 / layout.threads;
  const double block_slots =
      700 + filled_passes * weight_slots +
      layout.tiles_per_block * (filled_passes * tile_slots + (1 - filled_passes) * empty_tile_slots);
  // Resident CTAs share the issue slots. A single CTA waits for each of its steps. The last wave is not full.
  const double resident = static_cast<double>(
      std::min<int64_t>(resident_blocks(device, layout), ceil_div(plan->num_blocks, int64_t{device.num_sms})));
  const double cycles_per_slot = 1.3 + 0.26 / resident;  // fitted to measurements
  // Every CTA distributes its warps evenly over the four schedulers of an SM.
  const double issue_cycles = resident * std::ceil(warps / 4) * block_slots * cycles_per_slot;
  const double chunks = std::ceil(static_cast<double>(layout.group_ci) / layout.chunk_ci);
  const double wait_cycles =
      5000 + layout.tiles_per_block * filled_passes *
                 (2500 * chunks + steps * (step_slots + 60) + (by_channels ? 40 * copies / layout.threads : 0));
  const double waves = std::ceil(static_cast<double>(plan->num_blocks) / device.num_sms / resident);
  plan->compute_us = waves * std::max(issue_cycles, wait_cycles) / (device.clock_ghz * 1e3);

  const double bytes = static_cast<double>(element_bytes(problem.dtype)), us_per_byte = 1e-3 / device.copy_gb_per_s;
  const double result_bytes = bytes * problem.batch * layout.groups * layout.group_co * h.out * w.out;
  const double source_bytes = bytes * problem.batch * layout.groups * layout.group_ci * h.in * w.in;
  const double again = static_cast<double>(layout.rows) * layout.columns /
                       (static_cast<double>(layout.tile_h) * layout.tile_w) * layout.co_tiles *
                       (layout.phase_splits > 1 ? h.num_filled : 1);
  plan->memory_us = us_per_byte * (1.1 * result_bytes + std::max(source_bytes, source_bytes * again / 1.3));
  // Measured: arithmetic hides little of loads and stores. In channels_last, a single channel is loaded and stored
  // element by element; half precision needs more instructions for both.
  const double layout_cost = !layout.channels_last_result                   ? 1
                             : layout.group_ci == 1 && layout.group_co == 1 ? 2.6
                             : half                                         ? 1.4
                                                                            : 1.1;
  plan->estimate_us = layout_cost * (plan->compute_us + plan->memory_us) + (is_exact(problem) ? 8 : half ? 16 : 11);
}

// Lower bound of the estimates of a tile's plans, for any chunk and CTA count. `warps`: lower bound of its warps.
double bound_us(const ConvTProblem& problem, const DeviceInfo& device, const ThinLayout& begun, double active,
                const ThinTile& tile, int32_t warps) {
  const double outputs = kThinInstances[tile.instance].outputs, positions = kThinInstances[tile.instance].positions;
  const double steps = static_cast<double>(begun.group_ci) * begun.taps;
  const double tile_slots =
      420 + steps * (outputs * positions * active + positions + outputs / 4 + 6) + 4.5 * outputs * positions;
  const double tiles = static_cast<double>(problem.batch) * ceil_div(begun.h.positions, tile.tile_h) *
                       ceil_div(begun.w.positions, tile.tile_w);
  const double passes = static_cast<double>(tile.split_phases ? begun.h.num_filled : 1) *
                        ceil_div(begun.group_co, tile.block_co) * ceil_div(begun.groups, tile.block_groups);
  const double compute_us =
      tiles * passes / device.num_sms * ceil_div(warps, 4) * tile_slots * 1.3 / (device.clock_ghz * 1e3);
  const double bytes =
      static_cast<double>(element_bytes(problem.dtype)) * (input_elements(problem) + output_elements(problem));
  return kRounded * (compute_us + 1e-3 / device.copy_gb_per_s * bytes + 8);
}

// Adds a tile with 1, 4 and 16 tiles per CTA. `begun`: the fields of the layout that depend on the problem only.
void add_plans(const ConvTProblem& problem, const DeviceInfo& device, const ThinLayout& begun, double active,
               ThinTile tile, BestPlans* plans) {
  const ThinInstance& instance = kThinInstances[tile.instance];
  ThinLayout layout = begun;
  if (!finish_thin_layout(problem, tile, instance.outputs, instance.positions, &layout)) return;
  if (layout.shared_bytes > device.shared_per_block || resident_blocks(device, layout) < 1) return;
  Plan plan = begin_plan(instance.name, Precision::kIeee, tile);
  for (const int32_t tiles : {1, 4, 16}) {
    layout.tiles_per_block = tile_of<ThinTile>(plan).tiles_per_block = tiles;
    layout.num_blocks = int64_t{ceil_div(layout.num_tiles, tiles)} * layout.passes;
    // Measured: CTAs need at least four warps, except for small problems.
    if (layout.num_blocks > (layout.threads < 128 ? 4 * device.num_sms : INT32_MAX)) continue;
    set_launch(layout, &plan);
    estimate(problem, device, instance, layout, active, &plan);
    plans->consider(plan);
  }
}

}  // namespace

void add_thin_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kForward) return;
  ThinLayout begun;
  if (!begin_thin_layout(problem, &begun)) return;
  const PhaseAxis &h = begun.h, &w = begun.w;
  const double active = begun.all_taps ? 1 : tap_share(h) * tap_share(w);
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 256;  // per group; larger layers are not thin
  if (group_ci > kMostChannels || group_co > kMostChannels) return;
  const int32_t co = static_cast<int32_t>(group_co), ci = static_cast<int32_t>(group_ci);
  std::vector<int32_t> widths, heights, channels, chunks;
  for (const int32_t width : {32, 64, 128, 256}) {
    if (width < w.positions) widths.push_back(width);
  }
  if (w.positions <= 288) widths.push_back(w.positions);
  for (const int32_t height : {1, 2, 3, 4, 6, 7, 8, 12, 15, 16}) {
    if (height < h.positions) heights.push_back(height);
  }
  if (h.positions <= 16) heights.push_back(h.positions);
  for (const int32_t count : {1, 2, 3, 4, 8, 16, 32}) {
    if (count < co) channels.push_back(count);
  }
  channels.push_back(co);
  for (const int32_t count : {4, 8, 16, 32}) {
    if (count < ci) chunks.push_back(count);
  }
  chunks.push_back(ci);
  for (int32_t index = 0; index < kNumThinInstances; ++index) {
    const ThinInstance& instance = kThinInstances[index];
    if (instance.dtype != problem.dtype) continue;
    BestPlans best(4, plans->most_us);
    for (const bool split : {false, true}) {
      if (split && h.out_stride == 1) continue;
      const int32_t phases = (split ? 1 : h.num_filled) * w.num_filled;
      for (const int32_t block_co : channels) {
        // Blocks of virtual outputs must be mostly filled and fit a CTA's warps.
        const int32_t virtual_outputs = phases * block_co;
        const int32_t blocks = ceil_div(virtual_outputs, instance.outputs);
        if (blocks > kMaxThinWarps || (2 * virtual_outputs < blocks * instance.outputs && virtual_outputs > 4))
          continue;
        for (const int32_t block_groups : {1, 2, 4, 8}) {
          if (block_groups > 1 && (block_co < co || block_groups > problem.groups)) continue;
          for (const int32_t width : widths) {
            for (const int32_t height : heights) {
              // At least two thirds of the warps' positions must exist.
              const int32_t warps_w = ceil_div(height * width, 32 * instance.positions);
              if (warps_w * blocks * block_groups > kMaxThinWarps) continue;
              if (3 * height * width < 2 * warps_w * 32 * instance.positions && height < h.positions) continue;
              ThinTile tile{index, height, width, 16, block_co, block_groups, split, ci};
              const int32_t warps = warps_w * blocks * block_groups;
              if (bound_us(problem, device, begun, active, tile, warps) > best.worst_us()) continue;
              for (const int32_t chunk : chunks) {
                tile.chunk_ci = chunk;
                add_plans(problem, device, begun, active, tile, &best);
              }
            }
          }
        }
      }
    }
    best.append_to(plans);
  }
}

}  // namespace convt
