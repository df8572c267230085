// Candidates of the mma engine for the gradient of the weight, and their estimated times. What decides bits (tiles, all
// of it) is chosen for one reference GPU whatever the GPU is.
#include "plan/mma_grad_weight.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/best_plans.h"
#include "plan/cost.h"
#include "plan/engines.h"
#include "plan/grad_weight.h"
#include "plan/plan.h"

namespace convt {
namespace {

constexpr int32_t kReservedBytes = 1024;  // shared memory that CUDA keeps of every CTA
constexpr int32_t kMostWarps = 14;  // that multiply
constexpr int64_t kLongestChain = 16384;  // pixels that one float32 chain adds up, where the workspace allows

// CTAs of one SM, by shared memory and by the registers that an instance needs.
int64_t resident_blocks(const DeviceInfo& device, const MmaGradWeightInstance& instance,
                        const MmaGradWeightLayout& layout) {
  const int32_t products = instance.row_tiles * instance.column_tiles;
  const int32_t threads = products <= 2 ? 1024 : products <= 4 ? 768 : products <= 6 ? 640 : 512;
  return std::min<int64_t>(device.shared_per_sm / (layout.shared_bytes + kReservedBytes), threads / layout.threads);
}

// Cycles, from a fit to 5,462 measured tiles of 17 layers (docs/performance.md). Of an SM's scheduler:
constexpr double kRead = 2.52;  // of a fragment: load, address, conversion
constexpr double kConflict = 1.02;  // each further wavefront
constexpr double kBorderRead = 6.95;  // more, where pixels or taps may not exist
constexpr double kProduct = 4.28;
constexpr double kRow = 311;  // of pixels, of a warp
constexpr double kWarpStage = 38;
// Of a warp alone:
constexpr double kStepLatency = 26.4;
constexpr double kReadLatency = 11.7;
constexpr double kBorderLatency = 22.5;  // more, of a read
// Of a loading warp, and of memory:
constexpr double kCopy = 46;  // of a row
constexpr double kLatency = 819;
// Of a CTA:
constexpr double kStore = 4.3;  // of a product's sums, of a warp
constexpr double kCyclesPerUs = 1755;
// Microseconds: launches of the kernel and the reduction.
constexpr double kLaunch = 12.3;
constexpr double kL2 = 3.65;  // times copy bandwidth
constexpr double kReduction = 7.85;  // of slabs, times the time at copy bandwidth

double root_of_cubes(double a, double b, double c) { return std::cbrt(a * a * a + b * b * b + c * c * c); }

// On the reference GPU. `conflicts`: wavefronts of a read of shared memory.
void estimate(const ConvTProblem& problem, const MmaGradWeightInstance& instance, const MmaGradWeightLayout& layout,
              double conflicts, Plan* plan) {
  const DeviceInfo device = h200();
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const auto resident = static_cast<double>(std::min<int64_t>(resident_blocks(device, instance, layout),
                                                              ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const double reads = 4 * instance.row_tiles + 2 * instance.column_tiles;
  const double products = instance.row_tiles * instance.column_tiles;
  const double rows = layout.tile_units;
  const double steps_of_row = ceil_div(std::min(layout.strip, layout.w.in), kMmaGradWeightPixels);
  const double border = std::min(1.0, 2 / steps_of_row / layout.strips + 2.0 / layout.h.in);
  const double copies = (has_merged_rows(layout, problem) ? 1 : rows) * layout.block_ci +
                        static_cast<double>(layout.slots) * layout.block_co;
  const double stages = ceil_div(layout.units_per_chunk, layout.tile_units);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms / resident);

  const double step =
      kRead * reads + kConflict * reads * (conflicts - 1) + kBorderRead * reads * border + kProduct * products;
  const double issue = resident * layout.warps * (rows * (steps_of_row * step + kRow) + kWarpStage) / 4;
  const double latency = rows * steps_of_row * (kStepLatency + (kReadLatency + kBorderLatency * border) * reads);
  const double load = copies * kCopy / layout.loaders + kLatency;
  const double cta = stages * root_of_cubes(issue, latency, load) + kStore * products * layout.warps;
  plan->compute_us = waves * cta / kCyclesPerUs;

  const double input = element * problem.batch * problem.c_in * problem.h.in * problem.w.in;
  const double rows_read = std::min(1.0, static_cast<double>(problem.h.kernel) / problem.h.stride) /
                           (problem.h.dilation > 1 && problem.h.stride > 1 ? layout.row_step : 1);
  const double output = element * problem.batch * problem.c_out * problem.h.out * problem.w.out * rows_read;
  const double staged = element * (layout.block_ci * rows * layout.strip +
                                   static_cast<double>(layout.block_co) * layout.slots * (layout.columns + 8));
  const double l2 = static_cast<double>(layout.num_blocks) * stages * staged;
  plan->memory_us = (input + output + l2 / kL2) / (device.copy_gb_per_s * 1e3);
  const double reduction = kReduction * static_cast<double>(plan->workspace_bytes) / (device.copy_gb_per_s * 1e3);
  plan->estimate_us = kLaunch + root_of_cubes(plan->compute_us, plan->memory_us, 0) + reduction;
}

// Pixels to chunks: `waves` waves of CTAs on the reference GPU, chains that are not too long, slabs that fit.
void choose_chunks(const ConvTProblem& problem, const MmaGradWeightInstance& instance,
                   const MmaGradWeightLayout& layout, int32_t waves, MmaGradWeightPlan* tile) {
  const DeviceInfo device = h200();
  int64_t chunks = std::max(device.num_sms * resident_blocks(device, instance, layout) * waves / layout.passes,
                            ceil_div(int64_t{layout.num_units} * layout.strip, kLongestChain));
  chunks = std::min(chunks, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, layout.num_units);
  tile->units_per_chunk = static_cast<int32_t>(ceil_div(int64_t{layout.num_units}, chunks));
}

// The order of pixels and the padding that meet fewest bank conflicts. Returns these.
double choose_banks(const ConvTProblem& problem, MmaGradWeightPlan* tile) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  MmaGradWeightLayout layout;
  MmaGradWeightPlan trial = *tile;
  double fewest = HUGE_VAL;
  for (trial.gy_padding = 0; trial.gy_padding < 32 * 4 / 16; ++trial.gy_padding) {
    trial.x_padding = trial.gy_padding;
    for (trial.pixel_order = 0; trial.pixel_order < kMmaGradWeightOrders; ++trial.pixel_order) {
      for (const bool taps_first : {false, true}) {
        trial.taps_first = taps_first;
        if (!make_mma_grad_weight_layout(problem, trial, &layout)) continue;
        const double conflicts = mma_grad_weight_conflicts(layout, element);
        if (conflicts < fewest) fewest = conflicts, *tile = trial;
        if (fewest == 1) return fewest;
      }
    }
  }
  return fewest;
}

// Completes a plan whose tile is chosen; false where it is not legal.
bool complete(const ConvTProblem& problem, double conflicts, Plan* plan) {
  const MmaGradWeightPlan& tile = plan->mma_grad_weight;
  MmaGradWeightLayout layout;
  if (!make_mma_grad_weight_layout(problem, tile, &layout) || layout.shared_bytes > h200().shared_per_block) {
    return false;
  }
  plan->threads = layout.threads;
  plan->shared_bytes = layout.shared_bytes;
  plan->num_blocks = layout.num_blocks;
  plan->workspace_bytes = slab_bytes(problem, layout.chunks);
  if (plan->workspace_bytes > kMaxWorkspaceBytes) return false;
  estimate(problem, kMmaGradWeightInstances[tile.instance], layout, conflicts, plan);
  return true;
}

// The same with chunks for so many waves of CTAs, before banks are chosen.
bool complete_in_waves(const ConvTProblem& problem, int32_t waves, Plan* plan) {
  constexpr double kUsualConflicts = 1.3;
  MmaGradWeightPlan& tile = plan->mma_grad_weight;
  MmaGradWeightLayout layout;
  tile.units_per_chunk = 1;
  if (!make_mma_grad_weight_layout(problem, tile, &layout)) return false;
  if (layout.shared_bytes > h200().shared_per_block) return false;
  choose_chunks(problem, kMmaGradWeightInstances[tile.instance], layout, waves, &tile);
  return complete(problem, kUsualConflicts, plan);
}

// Parts of `total` that divide it evenly, of at most `most`.
std::vector<int32_t> even_parts(int64_t total, int32_t most) {
  std::vector<int32_t> parts;
  for (int64_t count = ceil_div(total, int64_t{most}); count <= total; ++count) {
    const auto part = static_cast<int32_t>(ceil_div(total, count));
    if (parts.empty() || part < parts.back()) parts.push_back(part);
    if (parts.size() == 6 || part == 1) break;
  }
  return parts;
}

// Tiles of one instance that are no waste, without stages.
template <typename Consider>
void each_block(const ConvTProblem& problem, const MmaGradWeightInstance& instance, Consider consider) {
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  auto padded = [](int64_t size, int64_t unit) { return static_cast<double>(ceil_div(size, unit) * unit); };
  const double products =
      static_cast<double>(group_ci) * static_cast<double>(group_co) * problem.h.kernel * problem.w.kernel;
  double least_waste = HUGE_VAL;
  for (const bool counts : {true, false}) {  // first the least waste, then all that are near it
    for (const int32_t block_ci : even_parts(group_ci, 64)) {
      const int32_t column_units = ceil_div(block_ci, 8 * instance.column_tiles);
      for (const int32_t block_kw : even_parts(problem.w.kernel, 16)) {
        for (const int32_t block_kh : even_parts(problem.h.kernel, 16)) {
          for (const int32_t block_co : even_parts(group_co, 64)) {
            const int32_t row_units = ceil_div(block_co * block_kh * block_kw, 16 * instance.row_tiles);
            if (column_units * row_units > kMostWarps) continue;
            const double tiles =
                static_cast<double>(ceil_div(group_ci, int64_t{block_ci}) * ceil_div(group_co, int64_t{block_co})) *
                ceil_div(problem.h.kernel, block_kh) * ceil_div(problem.w.kernel, block_kw);
            const double waste = tiles * padded(block_ci, int64_t{8} * instance.column_tiles) *
                                 padded(block_co * block_kh * block_kw, int64_t{16} * instance.row_tiles) / products;
            if (counts) {
              least_waste = std::min(least_waste, waste);
            } else if (waste <= 1.35 * least_waste) {
              consider(block_ci, block_co, block_kh, block_kw);
            }
          }
        }
      }
    }
  }
}

}  // namespace

void add_mma_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.x_stride[3] != 1 || problem.y_stride[3] != 1) return;
  if (problem.c_in == problem.groups && problem.c_out == problem.groups) return;  // one sum in 128 would exist
  std::vector<int32_t> strips;
  for (const int32_t strip : {8, 16, 24, 32, 40, 64, 96, 128, 256}) {
    if (strip < problem.w.in && strip >= 32) strips.push_back(strip);
  }
  if (problem.w.in <= 256) strips.push_back((problem.w.in + 7) / 8 * 8);
  const DeviceInfo reference = h200();
  for (int32_t index = 0; index < kNumMmaGradWeightInstances; ++index) {
    const MmaGradWeightInstance& instance = kMmaGradWeightInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    Plan trial{};
    trial.engine = Engine::kMma;
    trial.kernel = instance.name;
    trial.served_precision = problem.precision;
    MmaGradWeightPlan& tile = trial.mma_grad_weight;
    // Of every block the strip and rows that are best with one pipeline; of the best of these every pipeline.
    BestPlans tiles(48), piped(4);
    each_block(problem, instance, [&](int32_t block_ci, int32_t block_co, int32_t block_kh, int32_t block_kw) {
      for (const int32_t strip : strips) {
        for (const int32_t units : {1, 2, 4, 8}) {
          if (units > problem.h.in) break;
          tile =
              MmaGradWeightPlan{index, strip, 1, block_ci, block_co, block_kh, block_kw, units, 2, 2, false, 0, 0, 0};
          if (complete_in_waves(problem, 1, &trial)) tiles.consider(trial);
        }
      }
    });
    for (const Plan& found : tiles.plans()) {
      trial = found;
      for (tile.stages = 2; tile.stages <= 4; ++tile.stages) {
        for (tile.loaders = 1; tile.loaders <= 4; tile.loaders *= 2) {
          for (const int32_t waves : {1, 2}) {
            if (complete_in_waves(problem, waves, &trial)) piped.consider(trial);
          }
        }
      }
    }
    for (Plan plan : piped.plans()) {
      const double conflicts = choose_banks(problem, &plan.mma_grad_weight);
      if (!complete(problem, conflicts, &plan)) continue;
      plan.estimate_us *= reference.num_sms * reference.clock_ghz / (device.num_sms * device.clock_ghz);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
