// Candidates of the mma family with estimated times.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "mma_sm90a/layout.h"
#include "plan/cost.h"

namespace convt {
namespace {

constexpr int32_t kStaticBytes = 64;       // static shared memory of the kernel
constexpr int32_t kReservedBytes = 1024;   // shared memory that CUDA reserves per CTA
constexpr int32_t kResidentThreads = 512;  // threads per SM, limited by registers

// CTAs per SM.
int32_t resident_blocks(const DeviceInfo& device, const MmaLayout& layout) {
  return std::min(kResidentThreads / layout.threads,
                  device.shared_per_sm / (layout.shared_bytes + kStaticBytes + kReservedBytes));
}

// Microseconds of a CTA's phases, in execution order, fitted to measured plans.
constexpr double kLaunch = 7;
constexpr double kPrologue = 5.4;
constexpr double kWeightFragment = 0.29;  // per fragment of a warp
constexpr double kTile = 0.06;
constexpr double kChunk = 0.49;
constexpr double kConvert = 0.3;    // per two quads of an operand plane, per thread
constexpr double kProduct = 0.0011;  // per mma of a warp
constexpr double kOperand = 0.0076;  // per 256 bytes of operands of a warp
constexpr double kUnit = 0.09;
constexpr double kStage = 0.0107;  // per result of a thread
constexpr double kBulkCopy = 0.028;
constexpr double kEdge = 0.047;         // per sixteen elements outside whole sectors
constexpr double kEmptyColumn = 0.044;  // per element of a thread
constexpr double kLatency = 0.36;      // memory latency of a stage
constexpr double kContention = 0.51;   // slowdown by 16 warps on an SM
// Factors of the time at copy bandwidth.
constexpr double kMemory = 0.91;
constexpr double kPartialSector = 2.05;  // per partial sector, relative to 64 bytes
constexpr double kSourceTile = 1.24;     // bytes loaded from L2
// Measured slowdown of held-out layers, relative to the estimates of other families.
constexpr double kLonger = 1.15, kLongerHalf = 1.45;

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const MmaLayout& layout,
              const MmaInstance& instance, Plan* plan) {
  const PhaseAxis &h = layout.h, &w = layout.w;
  const double threads = layout.threads, warps = layout.warps;
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const bool split = layout.split_phases > 1;
  const int32_t filled = split ? 1 : h.num_filled, phases = split ? 1 : h.out_stride;

  const int32_t resident = resident_blocks(device, layout);
  const auto waves = static_cast<double>(ceil_div(layout.num_blocks, int64_t{resident} * device.num_sms));
  const double tiles = waves * ceil_div(layout.num_tiles, layout.blocks_per_pass);

  const double quads = std::ceil(layout.chunk_steps * layout.raw_channel / (2 * threads));
  const double rounds = std::ceil(layout.column_units * layout.position_units / warps);
  const double products = instance.column_tiles * instance.position_tiles;
  const double step = kProduct * products + kOperand * (2 * instance.column_tiles + instance.position_tiles);
  const double chunk = kChunk + kConvert * quads + rounds * layout.taps * layout.chunk_steps * step;
  const double stage_bytes = layout.chunk_ci * layout.raw_channel * element;
  const double wait = std::max(0.0, kLatency * (1 + resident * stage_bytes / 32768) - 0.5 * layout.raw_slots * chunk);
  // Whether the alignment of results changes between tiles, so that W phases without taps are filled again.
  const bool moves = layout.tile_h * h.out_stride * layout.result_stride[2] % layout.result_vector != 0;
  const double empty_columns =
      moves ? layout.block_co * layout.tile_h * filled * (w.out_stride - w.num_filled) * layout.tile_w / threads : 0;
  const double run_bytes = layout.tile_w * w.out_stride * element;
  const double copies = layout.block_co * layout.tile_h *
                        (filled + (phases - filled) * std::ceil(run_bytes / std::max(layout.bias_bytes, 16)));
  const double edges = layout.aligned_runs ? 0 : std::ceil(layout.block_co * layout.tile_h * phases * 16 / threads);
  const double chunks = layout.num_chunks;
  const double tile = kTile + chunks * chunk + (chunks > 1 ? chunks : 0.3) * wait +
                      rounds * (kUnit + kStage * 4 * products) + kEmptyColumn * empty_columns + kBulkCopy * copies +
                      kEdge * edges;
  const double fragments = layout.taps * layout.steps * layout.column_tiles / warps;
  plan->compute_us = kPrologue + kWeightFragment * fragments + tiles * tile * (1 + kContention * resident * warps / 16);

  const double bytes =
      element * problem.batch *
      (static_cast<double>(problem.c_out) * h.out * w.out + static_cast<double>(problem.c_in) * h.in * w.in);
  const double all_tiles = static_cast<double>(layout.num_tiles) * layout.passes;
  const double filled_passes = split ? static_cast<double>(h.num_filled) / h.out_stride : 1;
  const double source = all_tiles * filled_passes * layout.group_ci * layout.raw_channel * element;
  const double partial =
      layout.aligned_runs ? 0 : all_tiles * layout.block_co * (layout.joined_rows ? 2 : 2 * layout.tile_h * phases);
  plan->memory_us =
      (kMemory * bytes + kPartialSector * 64 * partial + kSourceTile * source) * 1e-3 / device.copy_gb_per_s;
  plan->estimate_us = kLaunch + (element == 2 ? kLongerHalf : kLonger) *
                                    std::cbrt(std::pow(plan->compute_us, 3) + std::pow(plan->memory_us, 3));
}

}  // namespace

void add_mma_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kForward || problem.batch == 0) return;
  MmaLayout begun;
  if (!begin_mma_layout(problem, &begun)) return;
  const PhaseAxis &h = begun.h, &w = begun.w;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 128;  // per group; the family is for few channels
  if (group_ci > kMostChannels || group_co > kMostChannels) return;
  const auto co = static_cast<int32_t>(group_co);
  const int32_t step_channels = 32 / static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t steps = ceil_div(static_cast<int32_t>(group_ci), step_channels);
  std::vector<int32_t> widths, heights, channels;
  for (const int32_t width : {32, 64, 128, 256}) {
    if (width < w.positions) widths.push_back(width);
  }
  if (w.positions <= 288) widths.push_back(w.positions);
  // Heights that leave few positions of an image's last tile unused.
  for (int32_t height = std::min(h.positions, 32); height >= 1; --height) {
    const int32_t tiles = ceil_div(h.positions, height);
    if (ceil_div(h.positions, tiles) == height && (height <= 4 || height % 4 == 0 || tiles <= 8)) {
      heights.push_back(height);
    }
  }
  for (const int32_t count : {1, 2, 4, 8, 16, 32}) {
    if (count < co) channels.push_back(count);
  }
  if (co > 2 && ceil_div(co, 2) % 4 != 0) channels.push_back(ceil_div(co, 2));
  channels.push_back(co);

  auto add = [&](MmaTile tile, BestPlans* best) {
    MmaLayout layout = begun;
    if (!finish_mma_layout(problem, tile, &layout) || layout.shared_bytes + kStaticBytes > device.shared_per_block) {
      return;
    }
    const int32_t resident = resident_blocks(device, layout);
    if (resident < 1) return;
    // All CTAs are resident at once, the same number for each pass.
    tile.blocks_per_pass = std::min(std::max(1, resident * device.num_sms / layout.passes), layout.num_tiles);
    layout.blocks_per_pass = tile.blocks_per_pass;
    layout.num_blocks = int64_t{layout.passes} * layout.blocks_per_pass;
    Plan plan = begin_plan(kMmaInstances[tile.instance].name, problem.precision, tile);
    set_launch(layout, &plan);
    estimate(problem, device, layout, kMmaInstances[tile.instance], &plan);
    best->consider(plan);
  };
  for (int32_t index = 0; index < kNumMmaInstances; ++index) {
    const MmaInstance& instance = kMmaInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    const int32_t unit_positions = instance.position_tiles * kMmaPositions;
    BestPlans best(8);
    for (const int32_t width : widths) {
      for (const int32_t height : heights) {
        // At least three fifths of the units' positions must exist, except if a tile covers the image.
        const int32_t positions = width * height, units = ceil_div(positions, unit_positions);
        const bool whole = width == w.positions && height == h.positions;
        if (positions > 1024 || (!whole && (positions < 64 || 5 * positions < 3 * units * unit_positions))) continue;
        for (const int32_t block_co : channels) {
          for (const int32_t threads : {128, 256}) {
            for (const bool split : {false, true}) {
              if (split && h.out_stride == 1) continue;
              for (const int32_t chunk_steps : {1, 2, 4, steps}) {
                if (steps % chunk_steps != 0) continue;
                for (const int32_t raw_slots : {1, 2}) {
                  add(MmaTile{index, threads, height, width, block_co, split, chunk_steps, raw_slots, 1}, &best);
                }
                if (chunk_steps == steps) break;
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
