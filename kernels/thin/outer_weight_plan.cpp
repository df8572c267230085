// Candidates of the thin engine's outer products for the gradient of the weight, with estimated times. Tiles, chunks
// and splits decide the bits of the result. They are therefore chosen for one reference GPU and fit the shared memory
// of every GPU.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/shared_memory.h"
#include "problem/shapes.h"
#include "thin/outer_weight_layout.h"

namespace convt {
namespace {

constexpr int32_t kMostSplits = 16, kWidestTile = 64;

// CTAs per SM; a thread has 128 registers.
int64_t resident_blocks(const DeviceInfo& device, const ThinOuterWeightLayout& layout) {
  return resident_blocks(device, layout.shared_bytes, layout.threads, 512);
}

// Elements per copy to shared memory: the largest of 4, 2, 1 that divides `a` and `b`.
int32_t copy_elements(int64_t a, int64_t b) { return a % 4 == 0 && b % 4 == 0 ? 4 : a % 2 == 0 && b % 2 == 0 ? 2 : 1; }

// Estimates times on the reference GPU. The constants are fitted to 139 measured plans of 14 layers.
void estimate(const ConvTProblem& problem, const ThinOuterWeightLayout& layout, Plan* plan) {
  const DeviceInfo device = h200();
  const int32_t width = kThinOuterWeightInstances[tile_of<ThinOuterWeightTile>(*plan).instance].width;
  const double warps = layout.threads / 32.0;
  const double resident = static_cast<double>(
      std::min<int64_t>(resident_blocks(device, layout), ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  // Warp instructions and shared-memory wavefronts per pixel.
  const double vectors = kOuterColumns / width;
  const double slots = kOuterChannels * kOuterColumns + 5 + 2 * vectors;
  const double rows_meet = 0.24 * (layout.block_kh - 1);  // bank conflicts between tap rows in scalar reads
  const double wavefronts = 2.8 + vectors * (width == 4 ? 1.4 : width == 2 ? 1.1 : 1.2 + rows_meet);
  // Per stage: pixels per thread, and copies per warp.
  const double rows = std::min(layout.tile_h, layout.h.in), columns = std::min(layout.tile_w, layout.w.in);
  const double pixels = std::ceil(columns / layout.splits) * rows;
  const int32_t x_copy = copy_elements(problem.c_in, 0);
  const int32_t gy_copy = copy_elements(problem.c_out * problem.w.padding, problem.c_out * problem.w.out);
  const double x_elems = rows * columns * layout.block_ci;
  const double gy_elems = static_cast<double>(layout.rows.extent) * layout.gy_pitch;
  const double x_copies = x_elems / x_copy / 32, gy_copies = gy_elems / gy_copy / 32;
  auto copy_cycles = [](int32_t elems) { return elems == 4 ? 1.0 : 16.0; };
  const double issue =
      (warps * (pixels * slots + rows * 115 + 110) + (x_copies + gy_copies) * 6 + (rows + layout.rows.extent) * 90) / 4;
  const double shared = warps * pixels * wavefronts + x_copies * copy_cycles(x_copy) + gy_copies * copy_cycles(gy_copy);
  const double stages = static_cast<double>(std::min(layout.tiles_per_chunk, layout.pixel_tiles));
  const double busy = std::min(0.94, 0.37 + 0.03 * resident * warps);
  const double waves = std::ceil(static_cast<double>(layout.num_blocks) / device.num_sms / resident);
  const double cta_cycles = stages * (std::hypot(issue, shared) / busy + 270 / resident) + 2500;
  plan->compute_us = waves * resident * cta_cycles / (device.clock_ghz * 1e3);

  const double slabs = static_cast<double>(plan->workspace_bytes);
  const double bytes = 4 * (input_elements(problem) + output_elements(problem)) + 2 * slabs;
  const double l2 = 4 * static_cast<double>(layout.num_blocks) * stages * (x_elems + gy_elems);
  plan->memory_us = std::max(bytes / (device.copy_gb_per_s * 1e3), l2 / (device.copy_gb_per_s * 1.2e3));
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us) +
                      10 + slabs / 3.1e6 + 7e-6 * static_cast<double>(weight_elements(problem));
}

// Chooses chunks for `waves` waves of CTAs on the reference GPU. `layout` contains the tile with any chunks; the chosen
// ones are written to it.
void choose_chunks(const ConvTProblem& problem, int32_t waves, ThinOuterWeightLayout& layout,
                   ThinOuterWeightTile* tile) {
  const int64_t passes = layout.num_blocks / layout.chunks;
  const int64_t thread_pixels = int64_t{layout.tile_h} * ceil_div(layout.tile_w, layout.splits);
  const int64_t wanted = h200().num_sms * resident_blocks(h200(), layout) * waves / passes;
  layout.tiles_per_chunk = tile->tiles_per_chunk = units_of_chunk(problem, layout.pixel_tiles, thread_pixels, wanted);
  layout.chunks = ceil_div(layout.pixel_tiles, tile->tiles_per_chunk);
  layout.num_blocks = passes * layout.chunks;
}

// Completes a plan whose blocks and tile are chosen, and keeps it if it is the best.
void consider(const ConvTProblem& problem, Plan& trial, Plan* best) {
  ThinOuterWeightTile& tile = tile_of<ThinOuterWeightTile>(trial);
  tile.tiles_per_chunk = 1;
  ThinOuterWeightLayout layout;
  if (!make_thin_outer_weight_layout(problem, tile, &layout) || layout.shared_bytes > kGradWeightShared) return;
  for (const int32_t waves : {1, 2, 4}) {
    choose_chunks(problem, waves, layout, &tile);
    set_launch(layout, &trial);
    trial.workspace_bytes = slab_bytes(problem, layout.chunks);
    estimate(problem, layout, &trial);
    if (best->kernel == nullptr || trial.estimate_us < best->estimate_us) *best = trial;
  }
}

// Best tile of an instance.
Plan best_plan(const ConvTProblem& problem, int32_t index) {
  const ThinOuterWeightInstance& instance = kThinOuterWeightInstances[index];
  const auto blocks_ci = static_cast<int32_t>(ceil_div(problem.c_in, int64_t{kOuterChannels}));
  const int64_t row_columns = problem.w.kernel * problem.c_out;
  if (row_columns > kMostOuterElems) return Plan{};
  const auto row_vectors = static_cast<int32_t>(ceil_div(row_columns, int64_t{instance.width}));
  Plan best{}, trial = begin_plan(instance.name, Precision::kIeee, ThinOuterWeightTile{});
  ThinOuterWeightTile& tile = tile_of<ThinOuterWeightTile>(trial);
  tile.instance = index;
  for (int32_t ci_tiles = 1; ci_tiles < 2 * blocks_ci; ci_tiles *= 2) {
    tile.block_ci = ceil_div(blocks_ci, ci_tiles) * kOuterChannels;
    // Tap rows in any number of equal parts; each height is tried once.
    for (int32_t kh_tiles = 1; kh_tiles <= problem.h.kernel;
         kh_tiles = tile.block_kh > 1 ? ceil_div(problem.h.kernel, tile.block_kh - 1) : kh_tiles + 1) {
      tile.block_kh = ceil_div(problem.h.kernel, kh_tiles);
      for (int32_t vector_tiles = 1; vector_tiles < 2 * row_vectors; vector_tiles *= 2) {
        if (vector_tiles > 1 && kh_tiles < problem.h.kernel) break;  // rows are split before vectors
        tile.block_vectors = ceil_div(row_vectors, vector_tiles);
        constexpr int64_t kMostColumns = kMaxOuterWeightThreads * kOuterColumns;
        if (int64_t{tile.block_kh} * tile.block_vectors * instance.width > kMostColumns) continue;
        // Limits of make_thin_outer_weight_layout() that do not depend on the tile of pixels.
        const int64_t jobs = int64_t{tile.block_ci} / kOuterChannels *
                             ceil_div(tile.block_kh * tile.block_vectors * instance.width, kOuterColumns);
        for (tile.splits = 1; tile.splits <= kMostSplits && jobs * tile.splits <= kMaxOuterWeightThreads;
             tile.splits *= 2) {
          for (const int32_t tile_w : {4, 8, 16, 32, kWidestTile, problem.w.in}) {
            if (tile_w > kWidestTile || tile_w >= 2 * problem.w.in) continue;
            tile.tile_w = tile_w;
            for (tile.tile_h = 1; tile.tile_h <= 16 && tile.tile_h < 2 * problem.h.in; tile.tile_h *= 2) {
              consider(problem, trial, &best);
            }
          }
        }
      }
    }
  }
  return best;
}

// Whether channels and columns are contiguous.
bool pixels_follow_each_other(const int64_t* stride, int64_t channels, int32_t columns) {
  return (channels == 1 || stride[1] == 1) && (columns == 1 || stride[3] == channels);
}

// Longest run of grad_output's row that a CTA reads for a pixel, in elements, over all CTAs. Planning calls this
// function thousands of times, and rows may have 2^20 columns.
int32_t longest_run(const ThinOuterWeightLayout& layout, int32_t width) {
  const int32_t block = layout.block_vectors * width;
  if (layout.w.dilation == 1 || layout.c_out % block == 0) return std::min(block, layout.row_vectors * width);
  // Each tap after a CTA's first adds the gap of the dilation to its run.
  const int32_t most_taps = ceil_div(block - width, layout.c_out);
  int32_t run = 0;
  for (int32_t begin = 0, taps = 0; begin < layout.row_vectors && taps < most_taps; begin += layout.block_vectors) {
    const int32_t first = begin * width;
    const int32_t last = (std::min(begin + layout.block_vectors, layout.row_vectors) - 1) * width;
    run = std::max(run, outer_position(layout, last) - outer_position(layout, first) + width);
    taps = std::max(taps, last / layout.c_out - first / layout.c_out);
  }
  return run;
}

}  // namespace

bool make_thin_outer_weight_layout(const ConvTProblem& problem, const ThinOuterWeightTile& plan,
                                   ThinOuterWeightLayout* layout) {
  const int32_t width = kThinOuterWeightInstances[plan.instance].width;
  const Axis &h = problem.h, &w = problem.w;
  if (problem.groups != 1 || problem.c_in > kMostOuterElems || problem.c_out > kMostOuterElems) return false;
  constexpr int64_t kMostRows = 1 << 28;  // rows of grad_output per stage: keeps row indices within 32 bits
  if (int64_t{plan.tile_h} * h.stride > kMostRows) return false;
  if (int64_t{w.kernel} * w.dilation * problem.c_out > kMostOuterElems) return false;
  if (w.stride * problem.c_out > kMostOuterElems) return false;
  if (w.out * problem.c_out > INT32_MAX / 4 || w.padding * problem.c_out > INT32_MAX / 4) return false;
  // A vector's columns must be contiguous in grad_output and aligned for every pixel.
  if (w.stride * problem.c_out % width != 0 || (w.dilation != 1 && problem.c_out % width != 0)) return false;
  layout->h = h;
  layout->w = w;
  layout->c_in = static_cast<int32_t>(problem.c_in);
  layout->c_out = static_cast<int32_t>(problem.c_out);
  layout->columns = w.kernel * layout->c_out;
  layout->row_vectors = ceil_div(layout->columns, width);

  layout->tile_h = plan.tile_h;
  layout->tile_w = plan.tile_w;
  layout->h_tiles = ceil_div(h.in, plan.tile_h);
  layout->w_tiles = ceil_div(w.in, plan.tile_w);
  const int64_t pixel_tiles = problem.batch * layout->h_tiles * layout->w_tiles;
  if (pixel_tiles > INT32_MAX / 2 || plan.tiles_per_chunk > INT32_MAX / 2) return false;
  layout->pixel_tiles = static_cast<int32_t>(pixel_tiles);
  layout->tiles_per_chunk = plan.tiles_per_chunk;
  layout->chunks = ceil_div(layout->pixel_tiles, plan.tiles_per_chunk);

  layout->block_ci = plan.block_ci;
  layout->block_kh = plan.block_kh;
  layout->block_vectors = plan.block_vectors;
  layout->vector_tiles = ceil_div(layout->row_vectors, plan.block_vectors);
  layout->kh_tiles = ceil_div(h.kernel, plan.block_kh);
  layout->ci_tiles = ceil_div(layout->c_in, plan.block_ci);
  const int64_t passes = int64_t{layout->vector_tiles} * layout->kh_tiles * layout->ci_tiles;
  if (passes > INT32_MAX / layout->chunks) return false;
  layout->num_blocks = passes * layout->chunks;

  if (plan.block_ci % kOuterChannels != 0 || (plan.splits & (plan.splits - 1)) != 0) return false;
  const int64_t vectors = int64_t{plan.block_kh} * plan.block_vectors;
  const int64_t threads_columns = ceil_div(vectors * width, int64_t{kOuterColumns});
  const int64_t jobs = plan.block_ci / kOuterChannels * threads_columns;
  if (jobs * plan.splits > kMaxOuterWeightThreads) return false;
  layout->splits = plan.splits;
  layout->threads_ci = plan.block_ci / kOuterChannels;
  layout->threads_columns = static_cast<int32_t>(threads_columns);
  layout->jobs = static_cast<int32_t>(jobs);
  layout->threads = round_up(layout->jobs * plan.splits, 32);

  constexpr int64_t kMostElems = 1 << 18;  // far more than fits
  layout->rows = row_window(plan.block_kh, h.dilation, h.stride, plan.tile_h);
  const int64_t run = longest_run(*layout, width);
  const int64_t pitch = round_up(int64_t{plan.tile_w - 1} * w.stride * layout->c_out + run, 4);
  const int64_t pixels = int64_t{plan.tile_h} * plan.tile_w;
  if (pixels > kMostElems || pitch > kMostElems || layout->rows.extent > kMostElems) return false;
  const int64_t x_elems = pixels * plan.block_ci, gy_elems = layout->rows.extent * pitch;
  if (x_elems > kMostElems || gy_elems > kMostElems) return false;
  layout->gy_pitch = static_cast<int32_t>(pitch);
  layout->gy_begin = static_cast<int32_t>(x_elems * 4);
  layout->stage_bytes = static_cast<int32_t>((x_elems + gy_elems) * 4);
  const int32_t handed_on = plan.splits / 2 * layout->jobs * kOuterChannels * kOuterColumns * 4;
  SharedMemory smem;
  smem.take(std::max(kOuterWeightStages * layout->stage_bytes, handed_on));
  layout->list_begin = smem.take(layout->threads_columns * (kOuterColumns / width) * kOuterVectorBytes);
  layout->shared_bytes = smem.bytes();
  return true;
}

void add_thin_outer_weight_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradWeight || problem.dtype != DataType::kFloat32 || problem.groups != 1) return;
  if (!pixels_follow_each_other(problem.x_stride, problem.c_in, problem.w.in)) return;
  if (!pixels_follow_each_other(problem.y_stride, problem.c_out, problem.w.out)) return;
  for (int32_t index = 0; index < kNumThinOuterWeightInstances; ++index) {
    Plan best = best_plan(problem, index);
    if (best.kernel == nullptr) continue;
    estimate_in_proportion(proportion(device, false), &best);
    plans->push_back(best);
  }
}

}  // namespace convt
