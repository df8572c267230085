// Candidates of the mma_grad_weight family with estimated times. Tiles determine the order of additions, so they are
// chosen for one reference GPU: results are the same on every GPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "mma_sm90a/grad_weight_layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

constexpr int32_t kMostUnits = 8;  // rows of pixels per stage
constexpr int32_t kMostWarps = 14;  // consumer warps
constexpr double kUsualConflicts = 1.3;  // assumed wavefronts per read with columns innermost, before choose_banks()
// Pruning of searches: a tile with its first pipeline takes at most kPipelined times as long as with its best, and at
// least kAboveBound times as long as its lower bound.
constexpr double kPipelined = 1.4, kAboveBound = 1.15;

// Threads per SM, limited by the registers of an instance.
int32_t resident_threads(const MmaGradWeightInstance& instance) {
  const int32_t products = instance.row_tiles * instance.column_tiles;
  return products <= 2 ? 1024 : products <= 4 ? 768 : products <= 6 ? 640 : 512;
}

// CTAs per SM.
int64_t resident_blocks(const DeviceInfo& device, const MmaGradWeightInstance& instance,
                        const MmaGradWeightLayout& layout) {
  return resident_blocks(device, layout.shared_bytes, layout.threads, resident_threads(instance));
}

// Cycles, fitted to 4,147 measured tiles of 9 layers in both layouts. Issue cycles of a scheduler of an SM:
constexpr double kRead = 4.97;  // per fragment: load, address, conversion
constexpr double kConflict = 1.38;  // per further wavefront
constexpr double kBorderRead = 2.42;  // additional per fragment if pixels or taps may not exist
constexpr double kProduct = 3.58;
constexpr double kRow = 217;  // per row of pixels and warp
constexpr double kWarpStage = 120;
// Latencies of a warp:
constexpr double kStepLatency = 22.4;
constexpr double kReadLatency = 15.3;
// Producer warps and memory:
constexpr double kRun = 67;  // per row, by one bulk copy
constexpr double kVectors = 86, kElements = 832;  // per 32 copies of vectors of pixels, or of 16-bit elements
constexpr double kLatency = 1207, kPixelLatency = 607;  // kPixelLatency: additional with channels innermost
// CTAs:
constexpr double kStore = 70;  // per 16 x 8 results of a warp
constexpr double kCyclesPerUs = 1755;
// Microseconds: launches of the kernel and the reduction.
constexpr double kLaunch = 9.65;
constexpr double kL2 = 8;  // L2 bandwidth relative to copy bandwidth
constexpr double kReduction = 2.2;  // time of adding slabs relative to copy bandwidth
constexpr double kResultBytes = 48;  // cost of a result in bytes: the reduction stores results with a stride

double sum_of_cubes(double a, double b, double c) { return a * a * a + b * b * b + c * c * c; }
double root_of_cubes(double a, double b, double c) { return std::cbrt(sum_of_cubes(a, b, c)); }

// Cycles of all producer warps for a stage, including waits for the last warp, and the stage's bytes.
struct StageCopies {
  double cycles;
  double bytes;
};
StageCopies stage_copies(const ConvTProblem& problem, const MmaGradWeightInstance& instance,
                         const MmaGradWeightLayout& layout) {
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const double rows = layout.tile_units, slots = layout.slots, ci = layout.block_ci, co = layout.block_co;
  if (instance.operands == WeightOperands::kColumns) {
    const double runs = (has_merged_rows(layout, problem) ? 1 : rows) * ci + slots * co;
    return {runs * kRun, element * (ci * rows * layout.strip + co * slots * (layout.columns + 8))};
  }
  const double pixels = std::min(layout.strip, layout.w.in), taps = layout.columns_apart ? layout.block_kw : 1;
  const double columns = layout.columns_apart ? pixels : layout.columns;
  double lines = 0;  // lines that warps copy pixel by pixel
  auto cycles = [&](bool runs, double rows, double elems, int64_t vector) {
    if (runs) return rows * kRun;
    lines += rows;
    const double copies = std::ceil(elems * element / static_cast<double>(vector) / 32);
    return rows * copies * (vector == 2 ? kElements : kVectors);
  };
  const int64_t x_vector = pixel_vector_bytes(problem.x_stride, layout.group_ci, layout.block_ci, problem.dtype);
  const int64_t gy_vector = pixel_vector_bytes(problem.y_stride, layout.group_co, layout.block_co, problem.dtype);
  const double all = cycles(layout.x_runs, rows, pixels * ci, x_vector) +
                     cycles(layout.gy_runs, slots * taps, columns * co, gy_vector);
  const double rounds = lines > 0 ? std::ceil(lines / layout.loaders) * layout.loaders / lines : 1;
  return {all * rounds, element * (rows * pixels * ci + slots * taps * columns * co)};
}

// Cycles of a stage: issue cycles of a scheduler with `warps` consumer warps per SM, and the latency of one warp.
struct StageProducts {
  double issue;
  double latency;
  double products;  // per step
};
StageProducts stage_products(const ConvTProblem& problem, const MmaGradWeightInstance& instance,
                             const MmaGradWeightTile& tile, double warps, double conflicts) {
  const double reads = 4 * instance.row_tiles + 2 * instance.column_tiles;
  const double products = instance.row_tiles * instance.column_tiles;
  const double rows = tile.tile_units;
  const double steps_of_row = ceil_div(std::min(tile.strip, problem.w.in), kMmaGradWeightPixels);
  const double border = std::min(1.0, 2 / steps_of_row / ceil_div(problem.w.in, tile.strip));
  const double step = (kRead + kConflict * (conflicts - 1) + kBorderRead * border) * reads + kProduct * products;
  return {warps * (rows * (steps_of_row * step + kRow) + kWarpStage) / 4,
          rows * steps_of_row * (kStepLatency + kReadLatency * reads), products};
}

// Estimates a plan on the reference GPU. `conflicts` is the wavefronts per read of shared memory. Returns false early
// if the estimate exceeds `most_us`; the comparison of cubes avoids the roots.
bool estimate(const ConvTProblem& problem, const MmaGradWeightInstance& instance, const MmaGradWeightLayout& layout,
              double conflicts, double most_us, Plan* plan) {
  const DeviceInfo device = h200();
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const auto resident = static_cast<double>(std::min<int64_t>(resident_blocks(device, instance, layout),
                                                              ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const StageCopies copies = stage_copies(problem, instance, layout);
  const double stages = ceil_div(layout.units_per_chunk, layout.tile_units);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms / resident);
  const StageProducts stage =
      stage_products(problem, instance, tile_of<MmaGradWeightTile>(*plan), resident * layout.warps, conflicts);
  const double load =
      copies.cycles / layout.loaders + kLatency + (instance.operands == WeightOperands::kColumns ? 0 : kPixelLatency);
  const double reduced = kReduction * static_cast<double>(plan->workspace_bytes) +
                         kResultBytes * static_cast<double>(weight_elements(problem));
  const double reduction = reduced / (device.copy_gb_per_s * 1e3), store = kStore * stage.products * layout.warps;
  const double most = ((most_us - kLaunch - reduction) * kCyclesPerUs / waves - store) / stages;  // cycles per stage
  if (sum_of_cubes(stage.issue, stage.latency, load) * (1 - 1e-6) > most * most * most) return false;
  const double cta = stages * root_of_cubes(stage.issue, stage.latency, load) + store;
  plan->compute_us = waves * cta / kCyclesPerUs;

  const double input = element * input_elements(problem);
  auto share = [](const Axis& axis) { return std::min(1.0, static_cast<double>(axis.kernel) / axis.stride); };
  const double rows_read = share(problem.h) / (problem.h.dilation > 1 && problem.h.stride > 1 ? layout.row_step : 1);
  const double columns_read = layout.columns_apart ? share(problem.w) : 1;
  const double output = element * output_elements(problem) * rows_read * columns_read;
  const double l2 = static_cast<double>(layout.num_blocks) * stages * copies.bytes;
  plan->memory_us = (input + output + l2 / kL2) / (device.copy_gb_per_s * 1e3);
  plan->estimate_us = kLaunch + root_of_cubes(plan->compute_us, plan->memory_us, 0) + reduction;
  return true;
}

// Whether all plans of a tile, for any pipeline and chunks, take longer than `most_us`.
bool takes_longer(const ConvTProblem& problem, const MmaGradWeightInstance& instance, const MmaGradWeightTile& tile,
                  double conflicts, double most_us) {
  if (most_us == HUGE_VAL) return false;
  const DeviceInfo device = h200();
  const int32_t warps = ceil_div(tile.block_co * tile.block_kh * tile.block_kw, 16 * instance.row_tiles) *
                        ceil_div(tile.block_ci, 8 * instance.column_tiles);
  auto parts = [](int64_t size, int32_t part) { return static_cast<double>(ceil_div(size, int64_t{part})); };
  const double passes = static_cast<double>(problem.groups) * parts(problem.c_in / problem.groups, tile.block_ci) *
                        parts(problem.c_out / problem.groups, tile.block_co) * parts(problem.h.kernel, tile.block_kh) *
                        parts(problem.w.kernel, tile.block_kw);
  const double units = static_cast<double>(problem.batch) * parts(problem.w.in, tile.strip) * problem.h.in;
  const double stages = passes * units / tile.tile_units / device.num_sms;
  const StageProducts stage = stage_products(problem, instance, tile, warps, conflicts);
  const double resident = std::max(1, resident_threads(instance) / (32 * (warps + 1)));
  const double us = stages / kCyclesPerUs;  // total time per cycle of a stage
  const double memory_us =
      static_cast<double>(element_bytes(problem.dtype)) * input_elements(problem) / (device.copy_gb_per_s * 1e3);
  const double reduced = kReduction * static_cast<double>(slab_bytes(problem, 1)) +
                         kResultBytes * static_cast<double>(weight_elements(problem));
  const double most = most_us / kRounded - kLaunch - reduced / (device.copy_gb_per_s * 1e3);
  const double cubes = us * us * us * sum_of_cubes(stage.issue, stage.latency / resident, kLatency / resident) +
                       memory_us * memory_us * memory_us;
  return most < 0 || kRounded * cubes > most * most * most;
}

// Padding vectors after the pixels of both operands, with channels innermost.
struct PixelPadding {
  int32_t x;
  int32_t gy;
  double conflicts;
};

// Paddings to try for a block: none if rows can be copied as runs, and the padding with the fewest bank conflicts.
std::vector<PixelPadding> pixel_paddings(const ConvTProblem& problem, const MmaGradWeightTile& block) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  constexpr int32_t kMost = 3;
  MmaGradWeightTile trial = block;
  MmaGradWeightLayout layout;
  auto conflicts = [&](int32_t x, int32_t gy, double fewest) {
    trial.x_padding = x, trial.gy_padding = gy;
    return make_mma_grad_weight_layout(problem, trial, &layout) ? mma_grad_weight_conflicts(layout, element, fewest)
                                                                : HUGE_VAL;
  };
  const PixelPadding none{0, 0, conflicts(0, 0, HUGE_VAL)};
  const bool runs = layout.x_runs || layout.gy_runs;
  if (none.conflicts == HUGE_VAL) return {};
  PixelPadding fewest = none;
  for (int32_t x = 1; x <= kMost; ++x) {
    if (const double found = conflicts(x, 0, fewest.conflicts); found < fewest.conflicts) fewest = {x, 0, found};
  }
  const int32_t x = fewest.x;
  for (int32_t gy = 1; gy <= kMost; ++gy) {
    if (const double found = conflicts(x, gy, fewest.conflicts); found < fewest.conflicts) fewest = {x, gy, found};
  }
  if (fewest.x == 0 && fewest.gy == 0) return {none};
  return runs ? std::vector<PixelPadding>{none, fewest} : std::vector<PixelPadding>{fewest};
}

// Completes a plan with a layout. Returns false if it is illegal or takes more than `most_us`.
bool complete(const ConvTProblem& problem, const MmaGradWeightLayout& layout, double conflicts, double most_us,
              Plan* plan) {
  if (layout.shared_bytes > h200().shared_per_block) return false;
  set_launch(layout, plan);
  plan->workspace_bytes = slab_bytes(problem, layout.chunks);
  if (plan->workspace_bytes > kMaxWorkspaceBytes) return false;
  return estimate(problem, kMmaGradWeightInstances[tile_of<MmaGradWeightTile>(*plan).instance], layout, conflicts,
                  most_us, plan);
}

// Completes a plan with chunks for `waves` waves of CTAs, before the orders of pixels and rows are chosen. `layout`
// must be the layout with one unit per chunk.
bool complete_in_waves(const ConvTProblem& problem, MmaGradWeightLayout* layout, double conflicts, int32_t waves,
                       double most_us, Plan* plan) {
  if (layout->shared_bytes > h200().shared_per_block) return false;
  MmaGradWeightTile& tile = tile_of<MmaGradWeightTile>(*plan);
  const int64_t resident = resident_blocks(h200(), kMmaGradWeightInstances[tile.instance], *layout);
  tile.units_per_chunk =
      units_of_chunk(problem, layout->num_units, layout->strip, h200().num_sms * resident * waves / layout->passes);
  if (tile.units_per_chunk > INT32_MAX / 2) return false;
  layout->units_per_chunk = tile.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, tile.units_per_chunk);
  layout->num_blocks = int64_t{layout->passes} * layout->chunks;
  return complete(problem, *layout, conflicts, most_us, plan);
}

// Sizes up to `most` that divide `total` into parts that are as equal as possible.
std::vector<int32_t> even_sizes(int64_t total, int32_t most) {
  std::vector<int32_t> sizes;
  for (int64_t count = ceil_div(total, int64_t{most}); sizes.size() < 6;) {
    sizes.push_back(static_cast<int32_t>(ceil_div(total, count)));
    if (sizes.back() == 1) break;
    count = ceil_div(total, int64_t{sizes.back()} - 1);  // the next count with smaller sizes
  }
  return sizes;
}

// Calls consider() for the blocks of an instance that waste few products.
template <typename Consider>
void each_block(const ConvTProblem& problem, const MmaGradWeightInstance& instance, Consider consider) {
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  auto padded = [](int64_t size, int64_t unit) { return static_cast<double>(ceil_div(size, unit) * unit); };
  const double products =
      static_cast<double>(group_ci) * static_cast<double>(group_co) * problem.h.kernel * problem.w.kernel;
  const std::vector<int32_t> sizes_ci = even_sizes(group_ci, 64), sizes_co = even_sizes(group_co, 64),
                             sizes_kh = even_sizes(problem.h.kernel, 16), sizes_kw = even_sizes(problem.w.kernel, 16);
  double least_waste = HUGE_VAL;
  for (const bool counts : {true, false}) {  // first find the least waste, then consider all blocks near it
    for (const int32_t block_ci : sizes_ci) {
      const int32_t column_units = ceil_div(block_ci, 8 * instance.column_tiles);
      for (const int32_t block_kw : sizes_kw) {
        for (const int32_t block_kh : sizes_kh) {
          for (const int32_t block_co : sizes_co) {
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

void add_mma_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradWeight || problem.batch == 0) return;
  if (problem.c_in == problem.groups && problem.c_out == problem.groups) return;  // would use one accumulator in 128
  const DeviceInfo reference = h200();
  const double longer = reference.num_sms * reference.clock_ghz / (device.num_sms * device.clock_ghz);
  const double most_us = plans->most_us / longer;
  for (int32_t index = 0; index < kNumMmaGradWeightInstances; ++index) {
    const MmaGradWeightInstance& instance = kMmaGradWeightInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    if (!serves_mma_grad_weight(problem, instance)) continue;
    const bool columns = instance.operands == WeightOperands::kColumns;
    std::vector<int32_t> strips;
    for (const int32_t strip : {8, 16, 32, 40, 64, 96, 128, 256}) {
      const bool wanted = columns ? strip >= 32 : (strip & (strip - 1)) == 0;
      if (strip < problem.w.in && wanted) strips.push_back(strip);
    }
    if (problem.w.in <= 256) strips.push_back(round_up(problem.w.in, kMmaGradWeightPixels));
    Plan trial = begin_plan(instance.name, problem.precision, MmaGradWeightTile{});
    MmaGradWeightTile& tile = tile_of<MmaGradWeightTile>(trial);
    MmaGradWeightLayout layout;
    // First find the best strips and rows of each block with one pipeline. Then try all pipelines of the best tiles.
    BestPlans tiles(plans->only_best ? 16 : 48, kPipelined * most_us), piped(4, most_us);
    std::map<std::array<int32_t, 3>, std::vector<PixelPadding>> known_paddings;  // independent of block_kh
    each_block(problem, instance, [&](int32_t block_ci, int32_t block_co, int32_t block_kh, int32_t block_kw) {
      tile = MmaGradWeightTile{index, 16, 1, block_ci, block_co, block_kh, block_kw, 1, 2, 2, false, 0, 0, 0};
      std::vector<std::array<int32_t, 2>> strips_and_units;
      for (const int32_t strip : strips) {
        for (int32_t units = 1; units <= std::min(kMostUnits, problem.h.in); units *= 2) {
          tile.strip = strip, tile.tile_units = units;
          if (!takes_longer(problem, instance, tile, 1, most_us / kAboveBound))
            strips_and_units.push_back({strip, units});
        }
      }
      if (strips_and_units.empty()) return;
      tile.strip = 16, tile.tile_units = 1;
      auto& paddings = known_paddings[{block_ci, block_co, block_kw}];
      if (paddings.empty()) {
        paddings = columns ? std::vector<PixelPadding>{{0, 0, kUsualConflicts}} : pixel_paddings(problem, tile);
      }
      for (const PixelPadding& padding : paddings) {
        tile.x_padding = padding.x, tile.gy_padding = padding.gy;
        for (const auto& [strip, units] : strips_and_units) {
          tile.strip = strip, tile.tile_units = units, tile.units_per_chunk = 1;
          if (!make_mma_grad_weight_layout(problem, tile, &layout)) continue;
          if (complete_in_waves(problem, &layout, padding.conflicts, 1, tiles.worst_us(), &trial)) {
            tiles.consider(trial);
          }
        }
      }
    });
    for (const Plan& found : tiles.plans()) {
      trial = found;
      if (takes_longer(problem, instance, tile, columns ? kUsualConflicts : 1, piped.worst_us())) continue;
      const double conflicts = columns ? kUsualConflicts : mma_grad_weight_conflicts(problem, tile);
      if (takes_longer(problem, instance, tile, conflicts, piped.worst_us())) continue;
      for (tile.stages = 2; tile.stages <= 4; ++tile.stages) {
        for (tile.loaders = 1; tile.loaders <= (columns ? 4 : 8); tile.loaders *= 2) {
          tile.units_per_chunk = 1;
          if (!make_mma_grad_weight_layout(problem, tile, &layout)) continue;
          for (const int32_t waves : {1, 2}) {
            if (complete_in_waves(problem, &layout, conflicts, waves, piped.worst_us(), &trial)) {
              piped.consider(trial);
            }
          }
        }
      }
    }
    // Bank conflicts do not depend on the pipeline.
    std::map<std::array<int32_t, 8>, std::pair<MmaGradWeightTile, double>> known_banks;
    for (Plan plan : piped.plans()) {
      MmaGradWeightTile& wanted = tile_of<MmaGradWeightTile>(plan);
      auto& [banks, conflicts] = known_banks[{wanted.block_ci, wanted.block_co, wanted.block_kh, wanted.block_kw,
                                              wanted.strip, wanted.tile_units, wanted.x_padding, wanted.gy_padding}];
      if (conflicts == 0) banks = wanted, conflicts = choose_banks(problem, &banks);
      wanted.taps_first = banks.taps_first, wanted.pixel_order = banks.pixel_order;
      wanted.x_padding = banks.x_padding, wanted.gy_padding = banks.gy_padding;
      if (!make_mma_grad_weight_layout(problem, wanted, &layout)) continue;
      if (!complete(problem, layout, conflicts, HUGE_VAL, &plan)) continue;
      plan.estimate_us *= longer;
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
