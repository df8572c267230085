// Candidates of the simt engine for the gradient of the weight. What decides bits (chunks, tiles, splits) is chosen for
// one reference GPU whatever the GPU is, within the shared memory that every GPU has.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "simt/grad_weight_layout.h"

namespace convt {
namespace {

constexpr int64_t kBlocks = 1056;  // CTAs aimed at, 8 for each SM of the reference GPU: with more there are more slabs

int32_t power_of_two_above(int64_t value) {
  int32_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// Pixels to chunks: about kBlocks CTAs, chains that are not too long, slabs that fit.
void choose_chunks(const ConvTProblem& problem, SimtGradWeightTile* plan) {
  plan->tiles_per_chunk = int64_t{1} << 60;  // one chunk has all: there may be more tiles than 32 bits count
  const GradWeightGrid grid = make_grad_weight_grid(problem, *plan);
  const int64_t blocks_per_chunk = num_blocks(grid);
  const int64_t tile_pixels = int64_t{plan->tile_h} << plan->tile_w_log2;
  int64_t chunks = std::max(ceil_div(kBlocks, blocks_per_chunk),
                            ceil_div(grid.pixel_tiles * tile_pixels, kLongestChain * plan->splits));
  const int64_t most_slabs = std::max<int64_t>(1, kMaxWorkspaceBytes / slab_bytes(problem, 1));
  chunks = std::clamp<int64_t>(chunks, 1, std::max<int64_t>(1, most_slabs / plan->splits));
  plan->tiles_per_chunk = ceil_div(grid.pixel_tiles, std::min(chunks, grid.pixel_tiles));
}

// Microseconds on the reference GPU.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, Plan* result) {
  const SimtGradWeightTile& plan = tile_of<SimtGradWeightTile>(*result);
  const GradWeightInstance& instance = kGradWeightInstances[plan.instance];
  const bool float64 = instance.dtype == DataType::kFloat64;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  GradWeightLayout layout;
  make_grad_weight_layout(problem, plan, &layout);
  const GradWeightGrid grid = make_grad_weight_grid(problem, plan);
  const double warps = result->threads / 32.0;
  const double pixels = static_cast<double>(plan.tile_h << plan.tile_w_log2);

  // Warp instructions of one tile of pixels.
  const double sums = instance.thread_ci * instance.thread_co * instance.thread_kw;
  const double vector = float64 ? 2 : 4;
  const double reads =
      std::ceil(instance.thread_ci / vector) + instance.thread_kw * std::ceil(instance.thread_co / vector);
  // The widest reads take four cycles of shared memory for a warp when every lane has its own address.
  const double read_slots = reads * std::clamp(2.0 * plan.splits, 2.5, 16.0);
  const double pixel_slots = 1.15 * sums * (float64 ? 2 : 1) + read_slots + 14;
  const double group_ci = static_cast<double>(problem.c_in / problem.groups);
  const double group_co = static_cast<double>(problem.c_out / problem.groups);
  const double window = static_cast<double>(layout.rows.extent) * layout.columns.extent;
  // A warp copies 4 channels of 8 positions at once. How long rows are in memory decides how many sectors that takes.
  const double channels_ci = std::min<double>(plan.block_ci, group_ci);
  const double channels_co = std::min<double>(plan.block_co, group_co);
  const double tile_w = 1 << plan.tile_w_log2, columns = layout.columns.extent;
  const double span = layout.columns.copies ? (tile_w - 1) * problem.w.stride + columns / tile_w * problem.w.dilation
                                            : columns * layout.columns.unit;
  const double y_sectors = channels_co * layout.rows.extent * std::min(columns, span * bytes / 32 + 1);
  const double x_sectors = channels_ci * plan.tile_h * (tile_w * bytes / 32 + 1);
  const double copies =
      std::ceil(pixels / 8) * std::ceil(channels_ci / 4) + std::ceil(window / 8) * std::ceil(channels_co / 4);
  const int64_t registers =
      std::min<int64_t>(168, static_cast<int64_t>(sums) * (float64 ? 2 : 1) + 60) * result->threads;
  const int64_t resident =
      std::max<int64_t>(1, std::min<int64_t>({device.shared_per_sm / (result->shared_bytes + 1024), 65536 / registers,
                                              ceil_div(result->num_blocks, int64_t{device.num_sms})}));
  // An elementwise copy costs an SM about 13 cycles. The products of another CTA hide most of them, unless that CTA has
  // only one or two warps; the products of the CTA that copies hide few.
  const double copy_cost = resident > 1 && warps > 2 ? 15 : 50;
  const double copy_slots = (copy_cost * copies + (x_sectors + y_sectors) + 30 * (window + pixels) / 8) / warps;
  const double tile_slots = pixels / plan.splits * pixel_slots + copy_slots + 350;
  const double tiles = static_cast<double>(std::min(plan.tiles_per_chunk, grid.pixel_tiles));
  const double cta_slots = (1500 + tiles * tile_slots) * warps;

  const double efficiency = std::min(0.95, 0.36 + 0.05 * static_cast<double>(resident) * warps);
  const double waves =
      std::ceil(static_cast<double>(result->num_blocks) / (device.num_sms * static_cast<double>(resident)));
  result->compute_us = waves * static_cast<double>(resident) * cta_slots / 4 / efficiency / (device.clock_ghz * 1e3);
  if (bytes == 2) result->compute_us *= 1.75;  // measured: such elements are converted on their way

  const double input = bytes * input_elements(problem);
  const double output = bytes * output_elements(problem);
  const double slabs = 2.0 * static_cast<double>(result->workspace_bytes);
  const double l2 = static_cast<double>(result->num_blocks) * tiles * 32 * (x_sectors + y_sectors);
  result->memory_us =
      std::max((input + output + slabs) / (device.copy_gb_per_s * 1e3), l2 / (device.copy_gb_per_s * 1.2e3));
  // Measured where there are more weights than pixels: 20 us for a million of them at least.
  const double weights = static_cast<double>(problem.c_in) * group_co * problem.h.kernel * problem.w.kernel;
  result->estimate_us = std::max(result->compute_us, result->memory_us) +
                        std::min(result->compute_us, result->memory_us) / (1 + static_cast<double>(resident)) + 8 +
                        2e-5 * weights;
}

// Completes a plan whose block and tile are chosen; false where it does not fit.
bool complete(const ConvTProblem& problem, const DeviceInfo& reference, Plan* plan) {
  SimtGradWeightTile& tile = tile_of<SimtGradWeightTile>(*plan);
  const GradWeightInstance& instance = kGradWeightInstances[tile.instance];
  const int32_t jobs =
      tile.block_ci / instance.thread_ci * (tile.block_co / instance.thread_co) * tile.block_kh * tile.block_runs;
  plan->threads = ceil_div(jobs * tile.splits, 32) * 32;
  GradWeightLayout layout;
  const int64_t shared = make_grad_weight_layout(problem, tile, &layout);
  if (plan->threads > kMaxGradWeightThreads || shared > kGradWeightShared) return false;
  plan->shared_bytes = static_cast<int32_t>(shared);
  choose_chunks(problem, &tile);
  const GradWeightGrid grid = make_grad_weight_grid(problem, tile);
  plan->num_blocks = num_blocks(grid);
  plan->workspace_bytes = slab_bytes(problem, int64_t{grid.chunks} * tile.splits);
  if (plan->num_blocks > INT32_MAX) return false;
  estimate(problem, reference, plan);
  return true;
}

}  // namespace

void add_simt_grad_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (problem.direction != Direction::kGradWeight) return;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  const DeviceInfo reference = h200();
  for (int32_t index = 0; index < kNumGradWeightInstances; ++index) {
    const GradWeightInstance& instance = kGradWeightInstances[index];
    if (instance.dtype != problem.dtype) continue;
    Plan best{};
    auto consider = [&](Plan trial) {
      if (!complete(problem, reference, &trial)) return;
      if (best.kernel == nullptr || trial.estimate_us < best.estimate_us) best = trial;
    };
    Plan trial = begin_plan(instance.name, Precision::kIeee, SimtGradWeightTile{});
    SimtGradWeightTile& tile = tile_of<SimtGradWeightTile>(trial);
    tile.instance = index;
    const int32_t runs = ceil_div(problem.w.kernel, instance.thread_kw);
    for (const int32_t groups_ci : {1, 2, 3, 4, 8}) {
      if (groups_ci > 1 && (groups_ci - 1) * instance.thread_ci >= group_ci) break;
      for (const int32_t groups_co : {1, 2, 4, 6, 8, 16}) {
        if (groups_co > 1 && groups_co * instance.thread_co >= 2 * group_co) break;
        for (int32_t kh_tiles = 1; kh_tiles <= problem.h.kernel; kh_tiles *= 2) {
          for (int32_t run_tiles = 1; run_tiles <= runs; run_tiles *= 2) {
            tile.block_ci = groups_ci * instance.thread_ci;
            tile.block_co = groups_co * instance.thread_co;
            tile.block_kh = ceil_div(problem.h.kernel, kh_tiles);
            tile.block_runs = ceil_div(runs, run_tiles);
            const int64_t jobs = int64_t{groups_ci} * groups_co * tile.block_kh * tile.block_runs;
            if (jobs > kMaxGradWeightThreads) continue;
            // Enough threads for a CTA: the rest of them share the pixels.
            const int32_t full = power_of_two_above(kMaxGradWeightThreads / jobs + 1) / 2;
            for (const int32_t splits : {full, std::max(full / 2, 1), 1}) {
              tile.splits = splits;
              for (int32_t w_log2 = 0; w_log2 <= 6; ++w_log2) {
                if (w_log2 > 1 && (1 << (w_log2 - 1)) >= problem.w.in) break;  // two pixels at least
                for (int32_t tile_h = 1; tile_h <= 16; tile_h *= 2) {
                  if (tile_h > 1 && tile_h / 2 >= problem.h.in) break;
                  const int32_t pixels = tile_h << w_log2;
                  if (pixels < 2 * splits || pixels > 512) continue;
                  tile.tile_w_log2 = w_log2;
                  tile.tile_h = tile_h;
                  consider(trial);
                }
              }
            }
          }
        }
      }
    }
    if (best.kernel == nullptr) continue;
    // Measured in float32: 1.1 to 2.6 times as long where output channels do not fill whole vectors.
    const double ragged = problem.dtype == DataType::kFloat32 && group_co % 4 != 0 ? 1.75 : 1;
    // And 1.2 to 1.9 times as long as estimated in channels_last.
    const bool channels_last = is_channels_last(problem.x_stride) && is_channels_last(problem.y_stride);
    const double scattered = problem.dtype == DataType::kFloat32 && channels_last ? 1.4 : 1;
    estimate_in_proportion(device, problem.dtype == DataType::kFloat64, ragged * scattered, &best);
    plans->push_back(best);
  }
}

}  // namespace convt
