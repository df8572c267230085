// Candidates of the simt engine for the gradient of the weight. Chunks, tiles and splits decide the bits of the result.
// They are therefore chosen for one reference GPU and fit the shared memory of every GPU.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "problem/volume.h"
#include "simt/grad_weight_layout.h"

namespace convt {
namespace {

constexpr int64_t kBlocks = 1056;  // target CTA count, 8 per SM of the reference GPU; more CTAs mean more slabs

int32_t power_of_two_above(int64_t value) {
  int32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// Splits the pixels into chunks: about kBlocks CTAs, limited chain lengths, slabs that fit the workspace.
void choose_chunks(const ConvTProblem& problem, SimtGradWeightTile* plan, GradWeightGrid* grid) {
  plan->tiles_per_chunk = int64_t{1} << 60;  // one chunk with all tiles, whose number may exceed 32 bits
  *grid = make_grad_weight_grid(problem, *plan);
  const int64_t blocks_per_chunk = num_blocks(*grid);
  const int64_t tile_pixels = int64_t{plan->tile_h} << plan->tile_w_log2;
  int64_t chunks = std::max(ceil_div(kBlocks, blocks_per_chunk),
                            ceil_div(grid->pixel_tiles * tile_pixels, kLongestChain * plan->splits));
  const int64_t most_slabs = std::max<int64_t>(1, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, std::max<int64_t>(1, most_slabs / plan->splits));
  plan->tiles_per_chunk = ceil_div(grid->pixel_tiles, std::min(chunks, grid->pixel_tiles));
  grid->chunks = static_cast<int32_t>(ceil_div(grid->pixel_tiles, plan->tiles_per_chunk));
}

int32_t registers_of(const GradWeightInstance& instance) {
  const int32_t sums = instance.thread_ci * instance.thread_co * instance.thread_kw;
  return std::min(168, sums * (instance.dtype == DataType::kFloat64 ? 2 : 1) + 60);
}

// Warp instructions per pixel.
double pixel_slots_of(const GradWeightInstance& instance, int32_t splits) {
  const bool float64 = instance.dtype == DataType::kFloat64;
  const int32_t vector = float64 ? 2 : 4;
  const double sums = instance.thread_ci * instance.thread_co * instance.thread_kw;
  const double reads = ceil_div(instance.thread_ci, vector) + instance.thread_kw * ceil_div(instance.thread_co, vector);
  // The widest reads occupy shared memory for four cycles per warp if every lane has its own address.
  const double read_slots = reads * std::clamp(2.0 * splits, 2.5, 16.0);
  return 1.15 * sums * (float64 ? 2 : 1) + read_slots + 14;
}

double efficiency_of(double resident, double warps) { return std::min(0.95, 0.36 + 0.05 * resident * warps); }

// A tile without its pixel extents. `rows` and `columns` are lower bounds of the window of grad_output per pixel.
struct Block {
  SimtGradWeightTile tile;
  double rows, columns;
};

int32_t threads_of(const GradWeightInstance& instance, const SimtGradWeightTile& tile) {
  const int32_t jobs =
      tile.block_ci / instance.thread_ci * (tile.block_co / instance.thread_co) * tile.block_kh * tile.block_runs;
  return round_up(jobs * tile.splits, 32);
}

// Calls use(tile_h) or use(w_log2) for each candidate extent.
template <typename Use>
void each_height(const ConvTProblem& problem, Use use) {
  for (int32_t tile_h = 1; tile_h <= 16 && (tile_h == 1 || tile_h / 2 < problem.h.in); tile_h *= 2) use(tile_h);
}
template <typename Use>
void each_width(const ConvTProblem& problem, Use use) {  // at least two pixels
  for (int32_t w_log2 = 0; w_log2 <= 6 && (w_log2 <= 1 || 1 << (w_log2 - 1) < problem.w.in); ++w_log2) use(w_log2);
}

// Estimated microseconds on the reference GPU.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const GradWeightLayout& layout,
              const GradWeightGrid& grid, Plan* result) {
  const SimtGradWeightTile& plan = tile_of<SimtGradWeightTile>(*result);
  const GradWeightInstance& instance = kGradWeightInstances[plan.instance];
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double warps = result->threads / 32.0;
  const double pixels = static_cast<double>(plan.tile_h << plan.tile_w_log2);

  // Warp instructions of one tile of pixels.
  const double pixel_slots = pixel_slots_of(instance, plan.splits);
  const double group_ci = static_cast<double>(problem.c_in / problem.groups);
  const double group_co = static_cast<double>(problem.c_out / problem.groups);
  const double window = static_cast<double>(layout.rows.extent) * layout.columns.extent;
  // A warp copies 4 channels of 8 positions at once. The length of rows in memory decides the number of sectors.
  const double channels_ci = std::min<double>(plan.block_ci, group_ci);
  const double channels_co = std::min<double>(plan.block_co, group_co);
  const double tile_w = 1 << plan.tile_w_log2, columns = layout.columns.extent;
  const double span = layout.columns.copies ? (tile_w - 1) * problem.w.stride + columns / tile_w * problem.w.dilation
                                            : columns * layout.columns.unit;
  const double y_sectors = channels_co * layout.rows.extent * std::min(columns, span * bytes / 32 + 1);
  const double x_sectors = channels_ci * plan.tile_h * (tile_w * bytes / 32 + 1);
  const double copies =
      std::ceil(pixels / 8) * std::ceil(channels_ci / 4) + std::ceil(window / 8) * std::ceil(channels_co / 4);
  const int64_t most = resident_blocks(device, result->shared_bytes, result->threads, 65536 / registers_of(instance));
  const int64_t resident = std::max<int64_t>(1, std::min(most, ceil_div(result->num_blocks, int64_t{device.num_sms})));
  // An elementwise copy costs an SM about 13 cycles. The products of another CTA hide most of them, unless that CTA has
  // only one or two warps. The copying CTA's own products hide few.
  const double copy_cost = resident > 1 && warps > 2 ? 15 : 50;
  const double copy_slots = (copy_cost * copies + (x_sectors + y_sectors) + 30 * (window + pixels) / 8) / warps;
  const double tile_slots = pixels / plan.splits * pixel_slots + copy_slots + 350;
  const double tiles = static_cast<double>(std::min(plan.tiles_per_chunk, grid.pixel_tiles));
  const double cta_slots = (1500 + tiles * tile_slots) * warps;

  const double efficiency = efficiency_of(static_cast<double>(resident), warps);
  const double waves =
      std::ceil(static_cast<double>(result->num_blocks) / (device.num_sms * static_cast<double>(resident)));
  result->compute_us = waves * static_cast<double>(resident) * cta_slots / 4 / efficiency / (device.clock_ghz * 1e3);
  if (bytes == 2) result->compute_us *= 1.75;  // measured: the loader converts 2-byte elements

  const double input = bytes * input_elements(problem);
  const double output = bytes * output_elements(problem);
  const double slabs = 2.0 * static_cast<double>(result->workspace_bytes);
  const double l2 = static_cast<double>(result->num_blocks) * tiles * 32 * (x_sectors + y_sectors);
  result->memory_us =
      std::max((input + output + slabs) / (device.copy_gb_per_s * 1e3), l2 / (device.copy_gb_per_s * 1.2e3));
  // Measured for problems with more weights than pixels: at least 20 us per million weights.
  const double weights = static_cast<double>(problem.c_in) * group_co * problem.h.kernel * problem.w.kernel;
  result->estimate_us = std::max(result->compute_us, result->memory_us) +
                        std::min(result->compute_us, result->memory_us) / (1 + static_cast<double>(resident)) + 8 +
                        2e-5 * weights;
}

// Lower bound of the estimates of a block's plans; infinity if none fits.
double bound_us(const ConvTProblem& problem, const DeviceInfo& device, const Block& block) {
  const SimtGradWeightTile& tile = block.tile;
  const GradWeightInstance& instance = kGradWeightInstances[tile.instance];
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double sum_bytes = instance.dtype == DataType::kFloat64 ? 8 : 4;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const double window = block.rows * block.columns;
  const double most_pixels =
      std::min(512.0, kGradWeightShared / (kGradWeightStages * sum_bytes *
                                           (channel_pitch(tile.block_ci) + window * channel_pitch(tile.block_co))));
  if (most_pixels < 2.0 * tile.splits || most_pixels < 2) return HUGE_VAL;
  const int32_t threads = threads_of(instance, tile);
  if (threads > kMaxGradWeightThreads) return HUGE_VAL;
  const double warps = threads / 32.0;
  const double resident = static_cast<double>(std::max<int64_t>(1, 65536 / (registers_of(instance) * threads)));
  const double blocks =
      static_cast<double>(problem.groups) * static_cast<double>(ceil_div(group_ci, int64_t{tile.block_ci})) *
      static_cast<double>(ceil_div(group_co, int64_t{tile.block_co})) * ceil_div(problem.h.kernel, tile.block_kh) *
      ceil_div(ceil_div(problem.w.kernel, instance.thread_kw), tile.block_runs);
  const double pixels = static_cast<double>(problem.batch) * problem.h.in * problem.w.in;
  const double channels_ci = static_cast<double>(std::min<int64_t>(tile.block_ci, group_ci));
  const double channels_co = static_cast<double>(std::min<int64_t>(tile.block_co, group_co));
  const double copies = (std::ceil(channels_ci / 4) + window * std::ceil(channels_co / 4)) / 8;
  const double x_sectors = channels_ci * bytes / 32;
  const double copy_slots = ((warps > 2 ? 15 : 50) * copies + x_sectors + 30 * (window + 1) / 8) / warps;
  const double tiles = static_cast<double>(problem.batch) * ceil_div(problem.h.in, 16) * ceil_div(problem.w.in, 64);
  const double slots = pixels * (pixel_slots_of(instance, tile.splits) / tile.splits + copy_slots) +
                       350 * std::max(tiles, pixels / most_pixels);
  double compute_us =
      blocks * (1500 + slots) * warps / device.num_sms / 4 / efficiency_of(resident, warps) / (device.clock_ghz * 1e3);
  if (bytes == 2) compute_us *= 1.75;
  const double moved = bytes * (input_elements(problem) + output_elements(problem)) +
                       2.0 * static_cast<double>(slab_bytes(problem, tile.splits));
  const double l2 = blocks * pixels * 32 * x_sectors / 1.2;
  const double memory_us = std::max(moved, l2) / (device.copy_gb_per_s * 1e3);
  const double weights =
      static_cast<double>(problem.c_in) * static_cast<double>(group_co) * problem.h.kernel * problem.w.kernel;
  return std::max(compute_us, memory_us) + std::min(compute_us, memory_us) / (1 + resident) + 8 + 2e-5 * weights;
}

// Completes a plan whose block and tile are chosen. Returns false if it does not fit.
bool complete(const ConvTProblem& problem, const DeviceInfo& reference, Plan* plan) {
  SimtGradWeightTile& tile = tile_of<SimtGradWeightTile>(*plan);
  plan->threads = threads_of(kGradWeightInstances[tile.instance], tile);
  GradWeightLayout layout;
  plan->shared_bytes = make_grad_weight_layout(problem, tile, &layout);
  if (plan->threads > kMaxGradWeightThreads || plan->shared_bytes > kGradWeightShared) return false;
  GradWeightGrid grid;
  choose_chunks(problem, &tile, &grid);
  plan->num_blocks = num_blocks(grid);
  plan->workspace_bytes = slab_bytes(problem, int64_t{grid.chunks} * tile.splits);
  if (plan->num_blocks > INT32_MAX) return false;
  estimate(problem, reference, layout, grid, plan);
  return true;
}

void add_plane_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const DeviceInfo reference = h200();
  for (int32_t index = 0; index < kNumGradWeightInstances; ++index) {
    const GradWeightInstance& instance = kGradWeightInstances[index];
    if (instance.dtype != problem.dtype) continue;
    BoundedParts<Block> blocks;
    const int32_t runs = ceil_div(problem.w.kernel, instance.thread_kw);
    std::vector<double> rows, columns;  // minimum per number of tap tiles
    for (int32_t kh_tiles = 1; kh_tiles <= problem.h.kernel; kh_tiles *= 2) {
      rows.push_back(HUGE_VAL);
      each_height(problem, [&](int32_t tile_h) {
        const int32_t block_kh = ceil_div(problem.h.kernel, kh_tiles);
        const Window window = row_window(block_kh, problem.h.dilation, problem.h.stride, tile_h);
        rows.back() = std::min(rows.back(), static_cast<double>(window.extent) / tile_h);
      });
    }
    for (int32_t run_tiles = 1; run_tiles <= runs; run_tiles *= 2) {
      columns.push_back(HUGE_VAL);
      each_width(problem, [&](int32_t w_log2) {
        const int32_t taps = ceil_div(runs, run_tiles) * instance.thread_kw;
        const Window window = output_columns(taps, problem.w.dilation, problem.w.stride, 1 << w_log2);
        columns.back() = std::min(columns.back(), static_cast<double>(window.extent) / (1 << w_log2));
      });
    }
    for (const int32_t groups_ci : {1, 2, 3, 4, 8}) {
      if (groups_ci > 1 && (groups_ci - 1) * instance.thread_ci >= group_ci) break;
      for (const int32_t groups_co : {1, 2, 4, 6, 8, 16}) {
        if (groups_co > 1 && groups_co * instance.thread_co >= 2 * group_co) break;
        for (size_t kh = 0; kh < rows.size(); ++kh) {
          for (size_t run = 0; run < columns.size(); ++run) {
            Block block{SimtGradWeightTile{index, groups_ci * instance.thread_ci, groups_co * instance.thread_co,
                                           ceil_div(problem.h.kernel, 1 << kh), ceil_div(runs, 1 << run), 1, 0, 0, 0},
                        rows[kh], columns[run]};
            const int64_t jobs = int64_t{groups_ci} * groups_co * block.tile.block_kh * block.tile.block_runs;
            if (jobs > kMaxGradWeightThreads) continue;
            // Full CTAs: the threads left over by `jobs` split the pixels.
            const int32_t full = power_of_two_above(kMaxGradWeightThreads / jobs + 1) / 2;
            for (const int32_t splits : {full, std::max(full / 2, 1), 1}) {
              block.tile.splits = splits;
              blocks.add(bound_us(problem, reference, block), block);
            }
          }
        }
      }
    }
    // Measured in float32: 1.1 to 2.6 times as long if the output channels do not fill whole vectors.
    const double ragged = problem.dtype == DataType::kFloat32 && group_co % 4 != 0 ? 1.75 : 1;
    // Measured in channels_last: 1.2 to 1.9 times as long as estimated.
    const bool channels_last = is_channels_last(problem.x_stride) && is_channels_last(problem.y_stride);
    const double scattered = problem.dtype == DataType::kFloat32 && channels_last ? 1.4 : 1;
    const double longer = proportion(device, problem.dtype == DataType::kFloat64, ragged * scattered);
    BestPlans found(1, plans->most_us / (kRounded * longer));
    Plan trial = begin_plan(instance.name, Precision::kIeee, SimtGradWeightTile{});
    SimtGradWeightTile& tile = tile_of<SimtGradWeightTile>(trial);
    blocks.search(found, [&](const Block& block, int32_t number) {
      tile = block.tile;
      each_width(problem, [&](int32_t w_log2) {
        each_height(problem, [&](int32_t tile_h) {
          const int32_t pixels = tile_h << w_log2;
          if (pixels < 2 * tile.splits || pixels > 512) return;
          tile.tile_w_log2 = w_log2;
          tile.tile_h = tile_h;
          if (complete(problem, reference, &trial)) found.consider(trial, number);
        });
      });
    });
    if (found.plans().empty()) continue;
    Plan best = found.plans().front();
    estimate_in_proportion(longer, &best);
    plans->push_back(best);
  }
}

// Plans of a three-dimensional problem: those of the depth tap with most pairs of planes, for all taps.
void add_volume_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.d.kernel > kMostDepthTaps) return;
  double all = 1;
  PlanePairs most{0, 0, 1};
  for (int32_t tap = 0; tap < problem.d.kernel; ++tap) {
    const PlanePairs pairs = plane_pairs(problem.d, tap);
    all += pairs.count;
    if (pairs.count > most.count) most = pairs;
  }
  const size_t first = plans->size();
  add_plane_plans(pairs_problem(problem, most), device, plans);
  for (size_t i = first; i < plans->size(); ++i) estimate_in_proportion(all / most.count, &(*plans)[i]);
}

}  // namespace

void add_simt_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradWeight) return;
  if (is_volume(problem)) return add_volume_plans(problem, device, plans);
  add_plane_plans(problem, device, plans);
}

}  // namespace convt
