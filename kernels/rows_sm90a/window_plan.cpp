#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/window_layout.h"

namespace convt {
namespace {

constexpr int32_t kMostSlots = 8;

bool serves(const ConvTProblem& problem) {
  if (problem.direction == Direction::kGradWeight) return false;
  for (const Axis* axis : {&problem.h, &problem.w}) {
    if (axis->stride != 1 || axis->dilation != 1) return false;
  }
  return problem.h.kernel == kWindowKernelH && window_reads_rows(problem);
}

// Tiles whose first begins at that column store whole sectors of memory (32 bytes) alone.
bool on_sectors(const ConvTProblem& problem, int32_t begin_w) {
  const int32_t sector = 32 / static_cast<int32_t>(element_bytes(problem.dtype));
  return begin_w % sector == 0 && make_gemm_shape(problem).result_w % sector == 0;
}

// Everything that follows from the instance and the tile's columns, or false where it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const WindowInstance& instance, Plan* whole) {
  WindowTile& plan = tile_of<WindowTile>(*whole);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t terms = window_terms(instance.precision);
  plan.block_n = instance.block_n;
  plan.tile_h = window_tile_h(instance.block_n, element, terms, plan.tile_w);
  plan.num_chunks = ceil_div(make_gemm_shape(problem).k_channels, window_channels(element));
  const WindowClasses classes = window_classes(problem);
  plan.row_classes = classes.rows;
  plan.channel_classes = classes.channels;
  if (classes.rows * classes.channels > 1 &&
      !window_serves_classes(instance.block_n, element, terms, instance.kernel_w)) {
    return false;
  }
  plan.pitch =
      window_pitch(plan.tile_w, instance.kernel_w - 1 + window_most_shift(classes, element), element, classes.channels);
  plan.slot_bytes = classes.rows * window_box_rows(plan.tile_h, classes.rows) * 32 * plan.pitch +
                    window_weight_bytes(instance.block_n, terms, instance.kernel_w);
  const int32_t staged_bytes = 2 * window_staged_bytes(instance.block_n, element, terms, instance.kernel_w);
  const int32_t left = device.shared_per_block - staged_bytes - window_barrier_bytes(kMostSlots);
  plan.source_slots = std::min(left / plan.slot_bytes, kMostSlots);
  if (plan.source_slots < 2) return false;
  plan.staged_begin = plan.source_slots * plan.slot_bytes;
  plan.barriers_begin = plan.staged_begin + staged_bytes;
  whole->shared_bytes = plan.barriers_begin + window_barrier_bytes(plan.source_slots);
  const WindowGrid grid = make_window_grid(problem, plan);
  plan.num_tiles = problem.batch * grid.row_tiles * grid.column_tiles * grid.groups * grid.channel_tiles;
  whole->num_blocks = std::min(plan.num_tiles, int64_t{device.num_sms});
  return true;
}

// Times in microseconds: one kernel packs the weights, the other's tiles take as long as the longer of what products
// and loads take and of what the stores take, and a constant; all of it takes longer the more it moves. Constants from
// a fit to 190 measurements of 5 layers in both directions and classes on an H200, those of tf32x3 to 162 of 14 layers.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const WindowInstance& instance, Plan* whole) {
  const WindowTile& plan = tile_of<WindowTile>(*whole);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const GemmShape gemm = make_gemm_shape(problem);
  const WindowGrid grid = make_window_grid(problem, plan);
  const int32_t terms = window_terms(instance.precision);
  const double products = 2.0 * plan.num_chunks * kWindowKernelH * instance.kernel_w *
                          window_warp_rows(instance.block_n, element, terms) * instance.block_n * (terms > 1 ? 3 : 1);
  const int32_t classes = plan.row_classes * plan.channel_classes;
  // The three products of tf32x3 are slower than that, and hide the loads.
  const double compute =
      (terms > 1 ? (instance.block_n == 64 ? 1.16 : 1.26) * products
                 : 0.837 * products + 0.0313 * static_cast<double>(plan.num_chunks) * plan.slot_bytes) *
          (element == 2 && instance.block_n == 32 ? 1.05 : 1) +
      (classes > 1 ? 55.0 * plan.num_chunks * classes : 0);
  // Whole sectors cost nothing beside products; others leave in pieces, and a row's ends in smaller ones.
  const double rows = static_cast<double>(plan.tile_h) * std::min(instance.block_n, gemm.n_channels);
  const double pieces = rows * gemm.result_w / grid.column_tiles / window_granule(problem, grid.begin_w);
  const double stores = on_sectors(problem, grid.begin_w) ? 0 : 0.475 * pieces + (plan.overlap == 0 ? 28 : 7.7) * rows;
  const double cycles = std::max(compute, stores) + 0.03 * stores + 2000;
  const double tiles = std::ceil(static_cast<double>(plan.num_tiles) / static_cast<double>(whole->num_blocks));
  whole->compute_us = tiles * cycles * 1e-3 / device.clock_ghz;
  const double input = element * input_elements(problem);
  const double output = element * output_elements(problem);
  const double copy = device.copy_gb_per_s * 1e3;
  whole->memory_us = (input + output) / copy;
  const double pack = 2 * static_cast<double>(whole->packed_bytes) / (0.72 * copy);
  whole->estimate_us = 10 + pack + std::max(whole->compute_us, whole->memory_us / 0.71) + 0.098 * whole->memory_us;
  // Where there are few tiles, others are faster beside this than their estimates say.
  if (terms > 1 && plan.num_tiles < device.num_sms) whole->estimate_us *= 1.15;
}

}  // namespace

int32_t window_shift(const Axis& axis, Direction direction) {
  return direction == Direction::kForward ? axis.padding - (axis.kernel - 1) : -axis.padding;
}

bool window_reads_rows(const ConvTProblem& problem) {
  const int64_t* source = source_stride(problem);
  const int64_t* result = result_stride(problem);
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t bytes = element_bytes(problem.dtype);
  if (gemm.source_w > 1 && source[3] != 1) return false;
  if (gemm.result_w > 1 && result[3] != 1) return false;
  return window_classes(problem).rows > 0 &&
         (problem.groups == 1 || gemm.k_channels % window_channels(static_cast<int32_t>(bytes)) == 0);
}

WindowClasses window_classes(const ConvTProblem& problem) {
  const int64_t* source = source_stride(problem);
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t bytes = element_bytes(problem.dtype);
  const int64_t all_channels = problem.groups * gemm.k_channels;
  const int64_t sizes[3] = {problem.batch, all_channels, gemm.source_h};
  int32_t classes[3];  // of images, channels, rows
  for (int axis = 0; axis < 3; ++axis) {
    constexpr int64_t kMostBytes = kMapStrideLimit / kWindowMaps;  // a class steps over the others
    classes[axis] = 1;
    if (sizes[axis] == 1) continue;
    if (source[axis] <= 0 || source[axis] * bytes >= kMostBytes) return {0, 0};
    while (source[axis] * bytes * classes[axis] % 16 != 0) classes[axis] *= 2;
    if (sizes[axis] < classes[axis]) return {0, 0};
  }
  if (classes[0] > 1 || classes[1] > 4 || classes[1] * classes[2] > kWindowMaps || all_channels % classes[1] != 0) {
    return {0, 0};
  }
  return {classes[2], classes[1]};
}

int32_t window_granule(const ConvTProblem& problem, int32_t begin_w) {
  const int64_t* stride = result_stride(problem);
  const int64_t together = stride[0] | stride[1] | stride[2] | begin_w;
  int32_t granule = 16 / static_cast<int32_t>(element_bytes(problem.dtype));
  while (granule > 1 && together % granule != 0) granule /= 2;
  return granule;
}

WindowGrid make_window_grid(const ConvTProblem& problem, const WindowTile& plan) {
  const GemmShape gemm = make_gemm_shape(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  WindowGrid grid;
  grid.channel_tiles = ceil_div(gemm.n_channels, plan.block_n);
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.begin_w = window_begin(window_shift(problem.w, problem.direction), element);
  grid.column_tiles = window_column_tiles(gemm.result_w, grid.begin_w, plan.tile_w, plan.overlap);
  grid.row_tiles = ceil_div(gemm.result_h, plan.tile_h);
  return grid;
}

void add_window_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (!serves(problem)) return;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t sector = 32 / element;
  const int32_t begin = window_begin(window_shift(problem.w, problem.direction), element);
  for (int32_t index = 0; index < kNumWindowInstances; ++index) {
    const WindowInstance& instance = kWindowInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision ||
        instance.kernel_w != problem.w.kernel) {
      continue;
    }
    for (int32_t way = 0; way < 6; ++way) {
      const int32_t tile_w = 32 << way % 3, overlap = way < 3 ? 0 : sector;
      if (overlap > 0 && on_sectors(problem, begin)) continue;
      Plan plan = begin_plan(instance.name, problem.precision, WindowTile{});
      WindowTile& tile = tile_of<WindowTile>(plan);
      tile.instance = index;
      tile.tile_w = tile_w;
      tile.overlap = overlap;
      if (!lay_out(problem, device, instance, &plan)) continue;
      const WindowGrid grid = make_window_grid(problem, tile);
      const int64_t packed_blocks = int64_t{grid.groups} * grid.channel_tiles * tile.num_chunks;
      constexpr int64_t kLimit = int64_t{1} << 30;
      if (tile.num_tiles > kLimit || packed_blocks > kLimit / kWindowKernelH / instance.kernel_w) continue;
      plan.packed_bytes =
          packed_blocks * window_weight_bytes(instance.block_n, window_terms(instance.precision), instance.kernel_w);
      plan.workspace_bytes = plan.packed_bytes;
      plan.source_on_vectors = true;
      plan.threads = kWindowThreads;
      estimate(problem, device, instance, &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
