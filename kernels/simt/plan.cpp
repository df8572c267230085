// Candidates of the simt engine: every instance and tile of it that a problem fits.
#include "plan/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "plan/cost.h"
#include "problem/adjoint.h"
#include "problem/fuse.h"
#include "simt/layout.h"
#include "simt/tile.h"

namespace convt {
namespace {

constexpr int32_t kMaxBlockCo = 64;
constexpr int32_t kThreadsPerGroup = 8;  // at least: a warp holds at most 4 channel groups
constexpr int64_t kFewChannels = 4;

// Which order of sums serves a class: the tensor-core classes get the stricter ieee.
Precision served_order(const ConvTProblem& problem) {
  if (problem.precision == Precision::kIeee) return Precision::kIeee;
  const bool half = problem.dtype == DataType::kFloat16 || problem.dtype == DataType::kBFloat16;
  if (problem.precision == Precision::kHalf && half) return Precision::kIeee;
  if (problem.precision == Precision::kHalf || problem.dtype != DataType::kFloat32) {
    throw std::invalid_argument(std::string("convt_ext: precision '") + name_of(problem.precision) +
                                "' is defined for " +
                                (problem.precision == Precision::kHalf ? "float16 and bfloat16" : "float32") +
                                ", got " + name_of(problem.dtype) + "; use precision='ieee' or leave it unset");
  }
  const bool forward = problem.direction == Direction::kForward;  // gradients have one order
  return forward && problem.precision == Precision::kAten ? Precision::kAten : Precision::kIeee;
}

// Halves the W phases of a tile until everything fits, then the stage's taps: along H first, and only
// for single channels, which keeps the order of the sums.
bool fit(const ConvTProblem& problem, const DeviceInfo& device, int32_t budget, Plan* plan) {
  SimtTile& tile = tile_of<SimtTile>(*plan);
  const int32_t limit = std::min(budget, device.shared_per_block - 1024);  // 1 KiB: static tables
  for (;;) {
    const int64_t bytes = make_shared_layout(problem, tile, nullptr);
    if (bytes <= limit) {
      plan->shared_bytes = static_cast<int32_t>(bytes);
      return true;
    }
    if (tile.chunk_ci > 1) return false;  // a smaller chunk is another candidate
    if (tile.phases_w > 1) {
      tile.phases_w = (tile.phases_w + 1) / 2;
    } else if (tile.chunk_kh > 1) {
      tile.chunk_kh = (tile.chunk_kh + 1) / 2;
    } else if (tile.chunk_kw > 1) {
      tile.chunk_kw = (tile.chunk_kw + 1) / 2;
    } else {
      return false;
    }
  }
}

// The best depth and chunk of a tile, or false when nothing fits.
bool choose_stages(const ConvTProblem& problem, const DeviceInfo& device, Plan* plan) {
  const bool tap_sums = kInstances[tile_of<SimtTile>(*plan).instance].precision == Precision::kAten;
  const int64_t group_c_in = problem.c_in / problem.groups;
  bool found = false;
  Plan best{};
  for (const int32_t resident : {1, 2, 3, 4}) {
    const int32_t budget = device.shared_per_sm / resident - 2048;
    for (const int32_t stages : {2, 3}) {
      for (const int32_t chunk : {1, 2, 4, 6, 8, 12, 16, 24, 32}) {
        if (chunk > 1 && chunk >= 2 * group_c_in) break;
        Plan trial = *plan;
        SimtTile& tile = tile_of<SimtTile>(trial);
        tile.stages = stages;
        tile.chunk_ci = static_cast<int32_t>(std::min<int64_t>(chunk, group_c_in));
        tile.chunk_kh = tap_sums ? 1 : max_taps(problem.h);
        tile.chunk_kw = tap_sums ? 1 : max_taps(problem.w);
        tile.phases_w = std::min(num_phases(problem.w), kMaxPhasesW);
        if (!fit(problem, device, budget, &trial)) continue;
        const TileShape shape{tile.block_co, tile.tile_n, tile.tile_h, tile.tile_w, tile.phases_w};
        trial.num_blocks = num_tiles(make_tile_grid(problem, shape));
        if (trial.num_blocks > INT32_MAX) continue;
        estimate_simt(problem, device, &trial);
        if (!found || trial.estimate_us < best.estimate_us) best = trial;
        found = true;
      }
    }
  }
  if (found) *plan = best;
  return found;
}

void add_tiles(const ConvTProblem& problem, const DeviceInfo& device, int32_t fused_w, int32_t instance_index,
               int32_t block_co, int32_t threads, std::vector<Plan>* plans) {
  const Instance& instance = kInstances[instance_index];
  const int32_t capacity = threads / (block_co / instance.thread_co) * instance.quads;  // quads of a tile
  const int32_t positions_h = num_positions(problem.h, 0);
  const int32_t row_quads = ceil_div(num_positions(problem.w, 0), 4);
  std::vector<int32_t> widths;
  for (int32_t width = 1; width < std::min(capacity, row_quads); width *= 2) widths.push_back(width);
  widths.push_back(std::min(capacity, row_quads));
  for (const int32_t width : widths) {
    Plan plan = begin_plan(instance.name, instance.precision, SimtTile{});
    SimtTile& tile = tile_of<SimtTile>(plan);
    tile.instance = instance_index;
    plan.threads = threads;
    tile.block_co = block_co;
    tile.fused_w = fused_w;
    tile.tile_w = 4 * width;
    tile.tile_h = std::min(capacity / width, positions_h);
    // Spread the rows evenly over the tiles that are needed anyway.
    tile.tile_h = ceil_div(positions_h, ceil_div(positions_h, tile.tile_h));
    const int32_t images = tile.tile_h == positions_h ? capacity / width / tile.tile_h : 1;
    tile.tile_n = static_cast<int32_t>(std::min<int64_t>(std::max(images, 1), std::max<int64_t>(problem.batch, 1)));
    if (choose_stages(problem, device, &plan)) plans->push_back(plan);
  }
}

// Every instance and tile for a problem whose W phases are `fused_w` to the channel.
void add_plans(const ConvTProblem& problem, const DeviceInfo& device, int32_t fused_w, std::vector<Plan>* plans) {
  const Precision order = served_order(problem);
  const int64_t group_c_out = problem.c_out / problem.groups;
  for (int32_t index = 0; index < kNumInstances; ++index) {
    const Instance& instance = kInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != order || instance.direction != problem.direction) {
      continue;
    }
    // Two channels a thread read too much shared memory for each product, where there are more channels.
    if (instance.thread_co < 8 && group_c_out > kFewChannels * fused_w) continue;
    for (int32_t block_co = instance.thread_co; block_co <= kMaxBlockCo; block_co *= 2) {
      if (block_co > instance.thread_co && block_co / 2 >= group_c_out) break;
      if (block_co % fused_w != 0) continue;
      for (const int32_t threads : {128, 256}) {
        if (block_co / instance.thread_co > threads / kThreadsPerGroup) continue;
        add_tiles(problem, device, fused_w, index, block_co, threads, plans);
      }
    }
  }
}

}  // namespace

void add_simt_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.direction == Direction::kGradWeight) {
    served_order(problem);  // refuses what no direction has
    return;
  }
  if (problem.direction == Direction::kGradInput) return add_plans(adjoint_problem(problem), device, 1, plans);
  add_plans(problem, device, 1, plans);
  if (can_fuse_phases(problem)) add_plans(fuse_phases(problem), device, problem.w.stride, plans);
}

}  // namespace convt
