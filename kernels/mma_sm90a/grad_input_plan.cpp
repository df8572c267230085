// Candidates of the mma_grad_input family with estimated times.
#include <algorithm>
#include <cmath>

#include "mma_sm90a/grad_input_layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

// CTAs per SM.
int32_t resident_blocks(const DeviceInfo& device, const MmaGradInputLayout& layout,
                        const MmaGradInputInstance& instance) {
  const int32_t threads_of_registers =
      max_mma_gradient_threads(instance.row_tiles, instance.position_tiles, is_split(instance.precision));
  return static_cast<int32_t>(resident_blocks(device, layout.shared_bytes, layout.threads, threads_of_registers));
}

// Microseconds, fitted to measured plans.
constexpr double kLaunch = 6.0;
constexpr double kChannelsLast = 0.6;  // additional for channels_last: a layer of 24 channels was slower than PyTorch
constexpr double kMakeWeights = 0.39;  // per weight fragment of a warp
constexpr double kStage = 0.09;
constexpr double kRead = 0.0037;  // per read of the source by a warp
constexpr double kHalfRead = 0.00023;  // additional per read of 2-byte elements
constexpr double kMask = 0.32;  // fraction that masks add to a read
constexpr double kFragment = 0.003;  // per sixteen rows of weights
constexpr double kProduct = 0.0042;
// tf32x3:
constexpr double kSplitSource = 0.0017;  // additional per eight positions
constexpr double kSplitWeights = 0.0037;  // additional per sixteen rows of weights
constexpr double kSplitProduct = 0.016;
constexpr double kUnit = 0.42;
constexpr double kStore = 0.023;  // per 16 x 8 results
constexpr double kSplit = 0.016;  // per 16 x 8 results and additional split of K
constexpr double kContention = 1.44;  // slowdown by 16 warps on an SM
constexpr double kLatency = 0.84;  // per stage of copies
constexpr double kCopy = 0.0075;  // per copy of a producer warp
// Factors of the time at copy bandwidth.
constexpr double kResultMemory = 1.65;
constexpr double kPartialSectors = 3.3;  // factor if rows of the result are not aligned to sectors
constexpr double kSourceMemory = 0.94;
constexpr double kCopyBytes = 280;  // overhead per copy

// Number of positions of an axis with taps outside the image.
int32_t border_positions(const Axis& axis) {
  const int32_t reach = (axis.kernel - 1) * axis.dilation;
  const int32_t before = std::min(axis.in, ceil_div(axis.padding, axis.stride));
  const int32_t inside = axis.out - 1 - reach + axis.padding;  // stride * (last position with no tap past the end)
  const int32_t behind = inside < 0 ? axis.in : std::max(0, axis.in - 1 - inside / axis.stride);
  return std::min(axis.in, before + behind);
}

// Fraction of units that contain a position with taps outside the image.
double masked_units(const MmaGradInputLayout& layout, int32_t position_tiles) {
  const double tiles = position_tiles, height = layout.tile_h;
  const double columns = std::min(2, border_positions(layout.w)) * std::max(1.0, tiles / height) * kMmaPositions;
  const double rows = std::min(2, border_positions(layout.h)) * std::min(height, tiles);
  return std::min(1.0, columns / layout.w.in + rows / layout.h.in);
}

// Wavefronts per read of the source in channels_last: positions of a tile that conflict in a bank.
int32_t interleaved_wavefronts(const MmaGradInputLayout& layout, int32_t element) {
  if (!layout.interleaved) return 1;
  const int64_t words = std::max<int64_t>(1, int64_t{layout.w.stride} * layout.column_pitch * element / 4);
  return std::max(4, greatest_common_divisor(static_cast<int32_t>(words % 32), 32)) / 4;
}

// Contiguous results per store of a lane.
int32_t neighbours(const MmaGradInputLayout& layout, const MmaGradInputInstance& instance, int32_t element) {
  if (!layout.wide) return 1;
  if (layout.result_channels_last) return std::min(2 * instance.row_tiles, 16 / element);
  return layout.run == 16 ? 4 : 2;
}

// Time of two overlapping phases, between their maximum and their sum.
double overlapped(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const MmaGradInputLayout& layout,
              const MmaGradInputInstance& instance, Plan* plan) {
  const auto bytes = static_cast<int32_t>(element_bytes(problem.dtype));
  const double element = bytes;
  const double resident = resident_blocks(device, layout, instance);
  const double chunks = layout.num_chunks, positions = instance.position_tiles;
  const double units = layout.channel_units * layout.position_units, products = instance.row_tiles * positions;
  const double rounds = std::ceil(units * layout.splits / layout.warps);
  const double busy = std::min<double>(layout.warps, units * layout.splits) * resident;

  const double reads = positions * (8 / element) * interleaved_wavefronts(layout, bytes);
  const double read = kRead + (element == 2 ? kHalfRead : 0);
  const double masked = masked_units(layout, instance.position_tiles);
  const double step = reads * read * (1 + kMask * masked) + kFragment * instance.row_tiles +
                      (is_split(instance.precision)
                           ? kSplitSource * positions + kSplitWeights * instance.row_tiles + kSplitProduct * products
                           : kProduct * products);
  const double steps = chunks * std::ceil(static_cast<double>(layout.steps) / layout.splits);
  const double stores = 4.0 / neighbours(layout, instance, bytes);
  const double multiply = chunks * kStage + rounds * (kUnit + kStore * stores * products + steps * step);
  const double planes = layout.interleaved ? 1 : layout.chunk_co;
  const double copies = planes * (layout.joined ? 1.0 : layout.slots);
  const double load = kLatency + kCopy * resident * copies / layout.loaders;
  const double stage = overlapped(multiply * (1 + kContention * busy / 16) / chunks, load);
  const auto waves = static_cast<double>(ceil_div(layout.num_blocks, int64_t{device.num_sms} * std::lround(resident)));
  const double tiles = waves * (layout.tiles_per_block + (layout.longer_blocks > 0 ? 1 : 0));
  plan->compute_us = tiles * (chunks * stage + kSplit * (layout.splits - 1) * products);

  const bool sectors = layout.result_channels_last || layout.result_stride[2] * bytes % 32 == 0;
  const double result = element * problem.batch * problem.c_in * layout.h.in * layout.w.in * (layout.wide ? 1 : 2) *
                        (sectors ? 1 : kPartialSectors);
  const double stage_bytes =
      planes * element * layout.slots * layout.columns * layout.column_pitch + kCopyBytes * copies;
  const double source = static_cast<double>(layout.num_tiles) * layout.groups * chunks * stage_bytes;
  plan->memory_us = (kResultMemory * result + kSourceMemory * source) * 1e-3 / device.copy_gb_per_s;
  const double fragments = chunks * layout.steps * layout.row_tiles;
  const double weights = kMakeWeights * fragments / layout.warps;
  plan->estimate_us = kLaunch + (layout.result_channels_last ? kChannelsLast : 0) + weights +
                      overlapped(plan->compute_us, plan->memory_us);
}

// Makes the plan of a tile and its layout. Returns false if there is none.
bool make_plan(const ConvTProblem& problem, const DeviceInfo& device, MmaGradInputTile tile, Plan* plan,
               MmaGradInputLayout& layout) {
  const MmaGradInputInstance& instance = kMmaGradInputInstances[tile.instance];
  if (!make_mma_grad_input_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block)
    return false;
  const int32_t resident = resident_blocks(device, layout, instance);
  if (resident < 1) return false;
  // All CTAs are resident at once, the same number for each group.
  tile.blocks_per_group = std::min(std::max(1, resident * device.num_sms / layout.groups), layout.num_tiles);
  if (!share_tiles(tile.blocks_per_group, &layout)) return false;
  *plan = begin_plan(instance.name, problem.precision, MmaGradInputTile{});
  set_launch(layout, plan);
  plan->tile = tile;
  estimate(problem, device, layout, instance, plan);
  return true;
}

// The plan with the order of K and the padding that have the fewest bank conflicts without lowering occupancy.
Plan without_conflicts(const ConvTProblem& problem, const DeviceInfo& device, const Plan& plan) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  Plan best = plan;
  double fewest = 32;
  for (const int32_t order : {0, 1, 2, 4}) {
    for (int32_t padding = 0; padding < 8; ++padding) {
      Plan candidate;
      MmaGradInputTile tile = tile_of<MmaGradInputTile>(plan);
      tile.order = order;
      tile.padding = padding;
      MmaGradInputLayout layout;
      if (!make_plan(problem, device, tile, &candidate, layout) || candidate.num_blocks < plan.num_blocks) break;
      const double conflicts = grad_input_conflicts(layout, element, fewest);
      if (conflicts >= fewest) continue;
      fewest = conflicts;
      best = candidate;
      if (conflicts == 1) return best;
    }
  }
  return best;
}

// Considers the plans of a tile and chunk: numbers of consumer warps and splits, and pipeline depths.
void add_plans(const ConvTProblem& problem, const DeviceInfo& device, MmaGradInputTile tile, BestPlans* plans) {
  const MmaGradInputInstance& instance = kMmaGradInputInstances[tile.instance];
  const auto group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  const int32_t units = ceil_div(group_ci, kMmaColumns * instance.row_tiles) *
                        ceil_div(tile.tile_h * tile.tile_w, kMmaPositions * instance.position_tiles);
  const auto add = [&](int32_t warps, int32_t splits) {
    tile.warps = warps;
    tile.splits = splits;
    if (warps < 2) return;
    for (const int32_t stages : {2, 3, 4}) {
      Plan plan;
      MmaGradInputLayout layout;
      tile.stages = stages;
      if (!make_plan(problem, device, tile, &plan, layout)) return;
      plans->consider(plan);
    }
  };
  for (const int32_t splits : {1, 2, 3}) add(splits * units, splits);
  if (tile.chunk_co < problem.c_out / problem.groups) return;
  for (const int32_t warps : {4, 7, 8, 11, 14}) {
    if (warps < units) add(warps, 1);
  }
}

}  // namespace

void add_mma_grad_input_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradInput || problem.batch == 0) return;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  // Per group. The estimate is not fitted to layers with more channels. In NCHW, except in tf32x3, other engines are
  // faster above half as many channels.
  constexpr int64_t kMostProducts = 2048;
  const bool half = problem.y_stride[3] == 1 && problem.precision != Precision::kTf32x3;
  const int64_t most = half ? 128 : 256;
  if (group_ci > most || group_co > most || group_ci * group_co > kMostProducts) return;
  const auto co = static_cast<int32_t>(group_co);
  const bool channels_last = problem.y_stride[3] != 1;
  std::vector<int32_t> widths, heights, chunks;
  // A tile is as wide as a row, or as a part of it with whole sectors of the result.
  const int32_t sector = 32 / static_cast<int32_t>(element_bytes(problem.dtype));
  for (const int32_t pieces : {1, 2, 3, 4, 5, 8, 10, 16}) {
    const int32_t piece = ceil_div(problem.w.in, pieces), width = pieces == 1 ? piece : round_up(piece, sector);
    const bool is_new = widths.empty() || width != widths.back();
    if (is_new && width <= 640 && (pieces == 1 || width >= (channels_last ? 16 : 32))) widths.push_back(width);
  }
  for (const int32_t height : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32}) {
    const int64_t covered = int64_t{ceil_div(problem.h.in, height)} * height;
    if (height <= problem.h.in && (height == 1 || 5 * covered <= int64_t{6} * problem.h.in)) heights.push_back(height);
  }
  // In channels_last a row is copied with all channels.
  for (const int32_t count : {1, 2, 3, 4, 8, 16}) {
    if (!channels_last && count < co && co % count == 0) chunks.push_back(count);
  }
  chunks.push_back(co);
  for (int32_t index = 0; index < kNumMmaGradInputInstances; ++index) {
    const MmaGradInputInstance& instance = kMmaGradInputInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    BestPlans best(6, plans->most_us);
    for (const int32_t width : widths) {
      for (const int32_t height : heights) {
        if (width * height > 1024) continue;
        for (const int32_t chunk : chunks) {
          MmaGradInputTile tile{};
          tile.instance = index;
          tile.tile_h = height;
          tile.tile_w = width;
          tile.chunk_co = chunk;
          tile.blocks_per_group = 1;
          add_plans(problem, device, tile, &best);
        }
      }
    }
    for (const Plan& plan : best.plans()) {
      if (plan.estimate_us > plans->most_us) break;
      plans->push_back(without_conflicts(problem, device, plan));
      plans->update_most();
    }
  }
}

}  // namespace convt
