#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "flat_sm90a/instances.h"
#include "flat_sm90a/layout.h"
#include "plan/shared_memory.h"
#include "plan/tap_program.h"

namespace convt {
namespace {

constexpr int64_t kMostWorkspaceBytes = int64_t{256} << 20;

// Reach of the taps along one axis: before position 0, and past the source's last element from the last position.
struct Reach {
  int32_t elements;  // source elements per residue
  int32_t before, behind;
  int32_t highest_shift;
};

Reach reach_of(const AxisWindow* windows, int32_t count, int32_t extra, int32_t source, int32_t step,
               int32_t positions) {
  Reach reach{ceil_div(source, step), 0, 0, 0};
  for (int32_t i = 0; i < count; ++i) {
    reach.before = std::max(reach.before, -windows[i].shift);
    reach.highest_shift = std::max(reach.highest_shift, windows[i].shift + extra);
  }
  reach.behind = std::max(0, positions + reach.highest_shift - reach.elements);
  return reach;
}

Reach reach_h(const TapProgram& program, const GemmShape& gemm) {
  return reach_of(program.window_h, std::max(program.phases_h, program.sub_h), program.extra_h, gemm.source_h,
                  program.source_step_h, gemm.positions_h);
}

Reach reach_w(const TapProgram& program, const GemmShape& gemm) {
  return reach_of(program.window_w, std::max(program.phases_w, program.sub_w), program.extra_w, gemm.source_w,
                  program.source_step_w, gemm.positions_w);
}

// Completes the plan from its tile. Returns false if it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program, const GemmShape& gemm,
             const FlatGeometry& geometry, Plan* whole) {
  FlatTile& plan = tile_of<FlatTile>(*whole);
  const int64_t window = plan.tile_positions + int64_t{program.extra_h} * geometry.pitch + program.extra_w;
  if (window > 4096) return false;
  plan.window = static_cast<int32_t>(window);
  const int32_t step_channels = problem.dtype == DataType::kFloat32 ? 8 : 16;
  const int32_t all_steps = ceil_div(gemm.k_channels, step_channels);
  int32_t most_taps = 1;  // per stage
  for (int32_t run = 0; run < program.num_runs; run += plan.phases) {
    int32_t taps = 0;
    for (int32_t i = run; i < run + plan.phases; ++i) taps += program.runs[i].num_h * program.runs[i].num_w;
    most_taps = std::max(most_taps, taps);
  }
  const int32_t limit = shared_room(device, 3 - plan.consumers);
  const int32_t slot_tiles = plan.split_channels ? plan.consumers : 1;
  const int32_t staged_bytes = plan.consumers * kFlatStagedFloats * 4;
  for (const int32_t k_steps : {4, 2, 1}) {
    if (k_steps > 1 && k_steps > all_steps) continue;
    plan.k_steps = k_steps;
    plan.num_chunks = ceil_div(all_steps, k_steps);
    plan.tap_bytes = k_steps * 2 * kFlatChannels * 16;
    const int32_t stage_bytes = 2 * k_steps * plan.window * 16;
    // Prefer large weight slots over small ones, then as many source slots as fit.
    for (const int32_t tile_bytes : {16384, 8192}) {
      plan.slot_taps = std::clamp(tile_bytes / plan.tap_bytes, 1, most_taps);
      const int32_t slot_bytes = slot_tiles * plan.slot_taps * plan.tap_bytes;
      for (int32_t slots = 6; slots > 2; --slots) {
        plan.weight_slots = std::clamp(std::max(slots * stage_bytes / 2, 40960 * slot_tiles) / slot_bytes, 3, 6);
        plan.source_slots = slots;
        SharedMemory smem;
        smem.take(slots * stage_bytes);
        plan.weights_begin = smem.take(plan.weight_slots * slot_bytes);
        plan.staged_begin = smem.take(staged_bytes);
        plan.barriers_begin = smem.take(16 * (slots + plan.weight_slots));
        whole->shared_bytes = smem.bytes();
        if (whole->shared_bytes <= limit) return true;
      }
    }
  }
  return false;
}

// Times in microseconds of the packing kernel and of the main kernel. A tile takes the longer of its products and its
// loads from L2, plus its stores. Constants are fitted to 328 measurements of 12 layers on an H200.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const TapProgram& program, const GemmShape& gemm,
              Plan* whole) {
  const FlatTile& plan = tile_of<FlatTile>(*whole);
  const double element = static_cast<double>(element_bytes(problem.dtype));
  const bool to_channels = is_channels_last(result_stride(problem));
  const double taps = static_cast<double>(program.total_taps) / program.phases_h;
  const double residues = program.sub_h * program.sub_w;
  const double steps = static_cast<double>(plan.num_chunks) * plan.k_steps;
  const double products = plan.consumers * taps * steps * plan.accumulators / plan.phases / 2;
  const double weight_bytes = taps * steps * (plan.split_channels ? plan.consumers : 1) * 2 * kFlatChannels * 16;
  const double source_bytes = steps * residues * 2 * plan.window * 16;
  const double slots = std::ceil(taps / residues / plan.slot_taps) * residues * plan.num_chunks;
  const double multiply = std::max(products / 0.85, (weight_bytes + source_bytes) / 40) + 130 * slots +
                          (plan.k_steps == 4 ? 0 : 60) * taps * plan.num_chunks;

  const double results = plan.consumers * kFlatChannels * plan.accumulators;
  // In NCHW, a row that begins within a sector shares it with the previous row.
  const bool whole_sectors = to_channels || static_cast<int64_t>(gemm.result_w * element) % 32 == 0;
  const double partial_sectors = whole_sectors ? 0 : 2 * results / gemm.result_w;
  const double store = 33.5 * plan.accumulators / 2 + results * element / 37;
  // Two CTAs per SM share tensor cores and memory, but one stores while the other multiplies.
  const double ctas = 3 - plan.consumers;
  const double together = ctas == 2 ? std::max(multiply, store) + 0.34 * std::min(multiply, store) : multiply + store;
  const double cycles = ctas * (together + (element == 4 ? 5 : 1.7) * partial_sectors);
  const double tiles = std::ceil(static_cast<double>(plan.num_tiles) / whole->num_blocks);
  whole->compute_us = 1.08 * tiles * (cycles + 2300) * 1e-3 / device.clock_ghz;  // 1.08: the clock under this load

  const double images = static_cast<double>(problem.batch * problem.groups) * element;
  const double source = images * gemm.k_channels * gemm.source_h * gemm.source_w;
  const double result = images * gemm.n_channels * gemm.result_h * gemm.result_w;
  const double packed = static_cast<double>(whole->workspace_bytes - whole->packed_bytes);
  const double copy = device.copy_gb_per_s * 1e3;
  whole->memory_us = (source + result) / copy;
  // In channels_last 8 threads pack the planes of a position. With fewer than 8 planes some are idle.
  const double idle = is_channels_last(source_stride(problem)) ? std::max(1.0, 8 / (2 * steps)) : 1;
  const bool strided = program.source_step_h > 1 || program.source_step_w > 1;
  const double pack = std::max(((strided ? 1.22 : 1) * source + packed) * idle / (0.8 * copy),
                               2 * static_cast<double>(whole->packed_bytes) / (0.33 * copy));
  whole->estimate_us = 1.09 * (10 + pack + std::max(whole->compute_us, (packed + result) / copy));
}

}  // namespace

bool make_flat_geometry(const ConvTProblem& problem, const TapProgram& program, FlatGeometry* geometry) {
  const GemmShape gemm = make_gemm_shape(problem);
  const Reach h = reach_h(program, gemm), w = reach_w(program, gemm);
  const int64_t pitch = std::max(w.elements + int64_t{std::max(w.before, w.behind)}, int64_t{gemm.positions_w});
  const int64_t image_rows = std::max(h.elements + int64_t{std::max(h.before, h.behind)}, int64_t{gemm.positions_h});
  constexpr int64_t kLimit = int64_t{1} << 30;
  if (pitch > kLimit || image_rows > kLimit) return false;
  geometry->rows = h.elements;
  geometry->columns = w.elements;
  const int32_t multiple = std::max(1, 4 / program.phases_w);
  geometry->pitch = static_cast<int32_t>(round_up(pitch, multiple));
  geometry->image_rows = static_cast<int32_t>(image_rows);
  const double all = (static_cast<double>(problem.batch) * image_rows + h.before + h.highest_shift + 2) *
                     (static_cast<double>(geometry->pitch) + w.before + w.highest_shift);
  if (all > kLimit) return false;
  geometry->lead = h.before * geometry->pitch + w.before;
  geometry->positions = ((problem.batch - 1) * image_rows + gemm.positions_h - 1) * geometry->pitch + gemm.positions_w;
  return true;
}

FlatGrid make_flat_grid(const ConvTProblem& problem, const FlatGeometry& geometry, const FlatTile& plan) {
  FlatGrid grid;
  grid.channel_tiles = ceil_div(make_gemm_shape(problem).n_channels, kFlatChannels);
  grid.block_tiles = ceil_div(grid.channel_tiles, plan.split_channels ? plan.consumers : 1);
  grid.position_tiles = ceil_div(geometry.positions, int64_t{plan.tile_positions});
  return grid;
}

void add_flat_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.precision == Precision::kTf32x3 || problem.direction == Direction::kGradWeight) return;
  TapProgram program;
  FlatGeometry geometry;
  if (!make_tap_program(problem, &program) || program.total_taps > kMaxFlatTaps ||
      !make_flat_geometry(problem, program, &geometry))
    return;
  const GemmShape gemm = make_gemm_shape(problem);
  const Reach h = reach_h(program, gemm), w = reach_w(program, gemm);
  for (int32_t index = 0; index < kNumFlatInstances; ++index) {
    const FlatInstance& instance = kFlatInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    if (instance.phases != program.phases_w || instance.phases != gemm.result_step_w) continue;
    for (const bool split_channels : {false, true}) {
      if (split_channels && (instance.consumers == 1 || gemm.n_channels <= kFlatChannels)) continue;
      Plan plan = begin_plan(instance.name, problem.precision, FlatTile{});
      FlatTile& tile = tile_of<FlatTile>(plan);
      tile.instance = index;
      tile.phases = instance.phases;
      tile.consumers = instance.consumers;
      tile.accumulators = instance.accumulators;
      tile.split_channels = split_channels;
      tile.tile_positions = instance.accumulators / instance.phases * (split_channels ? 1 : instance.consumers);
      if (!lay_out(problem, device, program, gemm, geometry, &plan)) continue;
      const FlatGrid grid = make_flat_grid(problem, geometry, tile);
      const int64_t num_tiles = grid.block_tiles * program.phases_h * problem.groups * grid.position_tiles;
      const int64_t packed_taps = problem.groups * grid.channel_tiles * int64_t{tile.num_chunks} * program.total_taps;
      // Tile indices are 32-bit, including the first index past the last tile.
      constexpr int64_t kLimit = int64_t{1} << 30;
      if (num_tiles > kLimit || packed_taps > kLimit) continue;
      tile.num_tiles = static_cast<int32_t>(num_tiles);
      plan.packed_bytes = round_up(packed_taps * tile.tap_bytes, 256);
      tile.plane_bytes = (geometry.lead + grid.position_tiles * tile.tile_positions +
                          int64_t{h.highest_shift} * geometry.pitch + w.highest_shift) *
                         16;
      const int64_t planes = problem.groups * tile.num_chunks * 2 * tile.k_steps * program.sub_h * program.sub_w;
      if (planes > kMostWorkspaceBytes / tile.plane_bytes) continue;
      plan.workspace_bytes = plan.packed_bytes + planes * tile.plane_bytes;
      if (plan.workspace_bytes > kMostWorkspaceBytes) continue;
      plan.threads = flat_threads(instance.consumers);
      plan.num_blocks = std::min(tile.num_tiles, (3 - instance.consumers) * device.num_sms);
      estimate(problem, device, program, gemm, &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
