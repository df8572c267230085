#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "nhwc_sm90a/layout.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"

namespace convt {
namespace {

constexpr int32_t kMostSourceSlots = 8;
constexpr int32_t kMostWeightSlots = 12;
constexpr int32_t kMostOfBox = 256;   // elements along a dimension of a tensor map's box
constexpr int32_t kMostBoxStep = 8;   // elements from one to the next
constexpr int32_t kStageAlignment = 1024;  // what swizzled rows begin on
constexpr size_t kTiles = 3;  // of an instance, the best ones

constexpr int64_t kLimit = int64_t{1} << 30;  // of what kernels count in 32 bits

// Whether a tensor map can describe the source: channels are neighbours, pixels begin on 16 bytes.
bool source_has_map(const ConvTProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t* stride = source_stride(problem);
  const int64_t element = element_bytes(problem.dtype);
  return is_channels_last(stride) && has_map_stride(problem.batch, stride[0], element) &&
         has_map_stride(forward ? problem.h.in : problem.h.out, stride[2], element) &&
         has_map_stride(forward ? problem.w.in : problem.w.out, stride[3], element);
}

// Whether tensor maps can describe each phase of the result.
bool result_has_maps(const ConvTProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t* stride = result_stride(problem);
  const int64_t element = element_bytes(problem.dtype);
  // Where a phase has more than one position, 64 bits hold the distance.
  const auto has_axis = [&](const Axis& axis, int64_t step) {
    const int32_t positions = forward ? num_positions(axis, 0) : axis.in;
    return positions <= 1 || has_map_stride(positions, (forward ? axis.stride : 1) * step, element);
  };
  return has_map_stride(problem.batch, stride[0], element) && has_axis(problem.h, stride[2]) &&
         has_axis(problem.w, stride[3]);
}

// What of a tile follows from the problem alone.
struct Work {
  TapProgram program;
  int32_t positions_h, positions_w;  // of a phase, at most
  int32_t windows;                   // of a tile
  int32_t extra_h, extra_w;          // of all windows
  double taps;                       // of a tile, on average
  int64_t k_channels, n_channels;
};

// Everything that follows from the instance, the tile and the number of splits, or false where it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance, const Work& work,
             Plan* whole) {
  NhwcTile& plan = tile_of<NhwcTile>(*whole);
  plan.block_n = instance.block_n;
  plan.box_w = plan.tile_w + work.extra_w;
  plan.box_h = plan.tile_h + work.extra_h;
  const int32_t step_h = work.program.source_step_h, step_w = work.program.source_step_w;
  if (plan.box_w > kMostOfBox || plan.box_h > kMostOfBox) return false;
  if ((plan.box_w - 1) * step_w + 1 > kMostOfBox || (plan.box_h - 1) * step_h + 1 > kMostOfBox) return false;
  const int64_t box_bytes = int64_t{plan.box_w} * plan.box_h * plan.tile_n * nhwc_row_bytes(instance.k_steps);
  const int32_t tap_bytes = nhwc_tap_bytes(instance);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  // Of the widest tiles, results from registers take less time than slots are worth.
  if (plan.staged &&
      (plan.splits > 1 || instance.block_n > 128 ||
       work.program.phases_h * work.program.phases_w > kNhwcMostStagedPhases || !result_has_maps(problem))) {
    return false;
  }
  const int32_t staged_bytes = plan.staged ? nhwc_staged_bytes(instance.blocks, instance.block_n, element) : 0;
  const int32_t barrier_bytes = 16 * (kMostSourceSlots + kMostWeightSlots + 1);
  const int64_t left = device.shared_per_block - barrier_bytes - staged_bytes - 4 * instance.block_n;
  const int64_t stage_bytes = ceil_div(box_bytes, int64_t{kStageAlignment}) * kStageAlignment;
  plan.source_slots = 0;
  for (int32_t slots = 2; slots <= kMostSourceSlots; ++slots) {
    // As many stages as leave as many slots of weights, but 4 of these at least and no more than 6, or 4 of the widest,
    // where taps are many. Of tf32x3's, which are read for three times as long, half as many.
    const int32_t enough = instance.block_n > 128 && work.taps > work.windows ? 4 : 6;
    const auto wanted = std::min(enough, std::max(4, static_cast<int32_t>(slots * work.taps / work.windows))) /
                        nhwc_terms(instance.precision);
    if (slots * stage_bytes + wanted * tap_bytes <= left) plan.source_slots = slots;
  }
  if (plan.source_slots == 0) return false;
  plan.stage_bytes = static_cast<int32_t>(stage_bytes);
  plan.weights_begin = plan.source_slots * plan.stage_bytes;
  plan.weight_slots =
      static_cast<int32_t>(std::min<int64_t>((left - plan.weights_begin) / tap_bytes, kMostWeightSlots));
  plan.staged_begin = plan.weights_begin + plan.weight_slots * tap_bytes;
  plan.barriers_begin = plan.staged_begin + staged_bytes;
  plan.bias_begin = plan.barriers_begin + barrier_bytes;
  whole->shared_bytes = plan.bias_begin + 4 * instance.block_n;

  plan.num_windows = work.windows;
  const int64_t channels = nhwc_row_bytes(instance.k_steps) / element_bytes(problem.dtype);
  plan.num_chunks = static_cast<int32_t>(ceil_div(work.k_channels, channels));
  const NhwcGrid grid = make_nhwc_grid(problem, work.program, plan);
  plan.num_tiles =
      int64_t{grid.channel_tiles} * grid.phases_w * grid.phases_h * grid.w_tiles * grid.h_tiles * grid.image_tiles;
  // Clusters lie within groups of SMs that are no multiple of 4 SMs.
  const int32_t clustered = plan.splits > 2 ? device.num_sms * 7 / 8 : device.num_sms;
  if (plan.splits > 1 &&
      (plan.num_tiles * plan.splits > clustered || plan.num_chunks * plan.num_windows < 2 * plan.splits ||
       nhwc_least_share(element) * plan.splits > plan.block_n ||
       nhwc_sum_bytes(instance.blocks, plan.block_n) > plan.staged_begin)) {
    return false;
  }
  whole->num_blocks =
      plan.splits > 1 ? plan.num_tiles * plan.splits : std::min<int64_t>(plan.num_tiles, device.num_sms);
  return true;
}

// Times in microseconds, in the order in which they pass. Constants from a fit to 1,300 measured plans of 14 layers in
// both directions and TF32 and bfloat16 on an H200, to 1,300
// of 16 layers with operands by descriptors, and to 460 in tf32x3 (docs/engines/nhwc.md), and 5 % more.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance, const Work& work,
              Plan* whole) {
  const NhwcTile& plan = tile_of<NhwcTile>(*whole);
  const bool forward = problem.direction == Direction::kForward;
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const double positions = 64.0 * kNhwcConsumers * instance.blocks;
  const double row_bytes = nhwc_row_bytes(instance.k_steps);
  const double tap_bytes = nhwc_tap_bytes(instance);

  // Of all windows of a chunk, cycles: tensor cores, or shared memory, which every block of positions reads the weights
  // from.
  const double products = work.taps * instance.k_steps * instance.blocks * instance.block_n;
  // In tf32x3 the terms of the weights are read three times for two, and the fewer channels, the more time fragments
  // take.
  const bool split = instance.precision == Precision::kTf32x3;
  const double reads = split ? 1.5 : 1;
  const double shared = (work.taps * (positions * row_bytes + (2 * instance.blocks * reads + 1) * tap_bytes) +
                         static_cast<double>(plan.num_windows) * plan.stage_bytes) /
                        128;
  const double cycles = split ? 3 * products + work.taps * instance.blocks * 3000 / instance.block_n : 1.02 * products;
  const bool boxes = has_rows_of_boxes(instance, plan);
  const double tap = split ? 115 : boxes ? (instance.block_n > 128 ? 40 : 20) : instance.block_n > 128 ? 80 : 168;
  const double chunk = std::max(cycles, 0.945 * shared) + tap * work.taps + 69 * plan.num_windows;
  const double results = static_cast<double>(plan.tile_w) * plan.tile_h * plan.tile_n *
                         static_cast<double>(std::min<int64_t>(instance.block_n, work.n_channels)) * element;
  const double tiles = std::ceil(static_cast<double>(plan.num_tiles * plan.splits) / device.num_sms);
  // Results by way of shared memory leave while the next tile begins, if there is one.
  const double per_byte = !plan.staged ? (boxes ? 0.045 : 0.059) : tiles > 1 ? 0.042 : boxes ? 0.06 : 0.07;
  const double stores =
      (boxes ? 500 : 1085) + per_byte * results + (plan.splits > 1 ? 0.047 * positions * instance.block_n * 4 : 0);
  whole->compute_us =
      tiles * (static_cast<double>(plan.num_chunks) * chunk / plan.splits + stores) / (device.clock_ghz * 1e3);

  // Of grad_output what no tap reads stays where it is, but short runs take as long as 192 bytes.
  const double images = static_cast<double>(problem.batch) * element;
  const double input = images * static_cast<double>(problem.c_in) * problem.h.in * problem.w.in;
  double output = images * static_cast<double>(problem.c_out) * problem.h.out * problem.w.out;
  const double read =
      forward ? 1 : static_cast<double>(plan.num_windows) / (work.program.source_step_h * work.program.source_step_w);
  if (read < 1) output *= read * std::max(1.0, 192 / (static_cast<double>(problem.c_out) * element));
  whole->memory_us = (input + output) / (device.copy_gb_per_s * 1e3);

  const double packed = static_cast<double>(whole->packed_bytes) / 1e6;
  const double pack = packed == 0 ? 0 : problem.w_stride[1] == 1 ? 3 + 0.6 * packed : 4.5 + 1.6 * packed;
  const double memory = 1.06 * whole->memory_us;
  whole->estimate_us =
      pack + 1.05 * (5.5 + std::max(whole->compute_us, memory) + 0.05 * std::min(whole->compute_us, memory));
}

// Tiles of at most `positions`, the best ones first.
std::vector<Plan> tiles(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                        const Work& work, const Plan& begun) {
  std::vector<Plan> plans;
  const int32_t positions = 64 * kNhwcConsumers * instance.blocks;
  const auto add = [&](int32_t tile_w) {
    int32_t last = 0;
    for (int32_t rows = std::min(positions / tile_w, work.positions_h); rows >= 1; --rows) {
      // Tiles of one height each, as equal as they can be.
      const int32_t tile_h = ceil_div(work.positions_h, ceil_div(work.positions_h, rows));
      if (tile_h == last) continue;
      last = tile_h;
      Plan plan = begun;
      NhwcTile& tile = tile_of<NhwcTile>(plan);
      tile.tile_w = tile_w;
      tile.tile_h = tile_h;
      tile.tile_n = static_cast<int32_t>(std::min<int64_t>(positions / (tile_w * tile_h), problem.batch));
      for (tile.splits = 1; tile.splits <= kNhwcMostSplits; tile.splits *= 2) {
        if (!lay_out(problem, device, instance, work, &plan)) continue;
        estimate(problem, device, instance, work, &plan);
        plans.push_back(plan);
      }
    }
  };
  if (work.positions_w <= positions) add(work.positions_w);
  // Wide ones first: of equal estimates they have the fewest bank conflicts. Narrow ones leave out no position where
  // images are small.
  for (int32_t tile_w = 64; tile_w >= 1; tile_w /= 2) {
    if (tile_w < work.positions_w && (tile_w >= 8 || work.positions_w % tile_w == 0)) add(tile_w);
  }
  for (int32_t count = 2; count <= 4; ++count) {
    const int32_t tile_w = ceil_div(work.positions_w, count);
    if (tile_w <= positions && tile_w > 8 && (tile_w % 8 != 0 || tile_w > 64)) add(tile_w);
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.estimate_us < b.estimate_us; });
  if (plans.size() > kTiles) plans.resize(kTiles);
  return plans;
}

// A tensor map brings the weights of a stage as products want them. Its largest step is that of a block of 8 columns or
// of their pairs' neighbours; along its innermost dimension it may have all taps.
bool is_direct(const ConvTProblem& problem) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  return problem.direction == Direction::kGradInput &&
         (problem.precision == Precision::kHalf || problem.precision == Precision::kTf32) && problem.w_stride[1] == 1 &&
         problem.c_in % nhwc_direct_channels(element) == 0 &&
         has_map_stride(problem.c_in, problem.w_stride[0], element) &&
         problem.w_stride[0] < kMapStrideLimit / (8 * nhwc_interleaved(element) * element) &&
         nhwc_tap_stride(problem) > 0 && has_map_stride(2, nhwc_tap_stride(problem), element) &&
         problem.c_out <= kLimit / taps;
}

}  // namespace

int64_t nhwc_tap_stride(const ConvTProblem& problem) {
  const int64_t rows = problem.w_stride[2], columns = problem.w_stride[3];
  if (problem.w.kernel == 1) return problem.h.kernel == 1 ? problem.w_stride[0] : rows;
  return problem.h.kernel == 1 || rows == problem.w.kernel * columns ? columns : 0;
}

NhwcWindow make_nhwc_window(const TapProgram& program, int32_t run) {
  const TapRun& taps = program.runs[run];
  const int32_t count_w = std::max(program.phases_w, program.sub_w);
  const AxisWindow &h = program.window_h[run / count_w], &w = program.window_w[run % count_w];
  NhwcWindow window{};
  if (taps.num_h == 0) return window;
  const int32_t last_row = (taps.num_h - 1) * taps.row_step, last_column = (taps.num_w - 1) * taps.column_step;
  const int32_t lowest_row = taps.row + std::min(0, last_row);
  const int32_t lowest_column = taps.column + std::min(0, last_column);
  window.row = (h.shift + lowest_row) * program.source_step_h + h.residue;
  window.column = (w.shift + lowest_column) * program.source_step_w + w.residue;
  window.extra_h = std::abs(last_row);
  window.extra_w = std::abs(last_column);
  window.first_row = taps.row - lowest_row;
  window.first_column = taps.column - lowest_column;
  return window;
}

NhwcGrid make_nhwc_grid(const ConvTProblem& problem, const TapProgram& program, const NhwcTile& plan) {
  const bool forward = problem.direction == Direction::kForward;
  NhwcGrid grid;
  grid.channel_tiles = static_cast<int32_t>(ceil_div(forward ? problem.c_out : problem.c_in, int64_t{plan.block_n}));
  grid.phases_w = program.phases_w;
  grid.phases_h = program.phases_h;
  grid.w_tiles = ceil_div(forward ? num_positions(problem.w, 0) : problem.w.in, plan.tile_w);
  grid.h_tiles = ceil_div(forward ? num_positions(problem.h, 0) : problem.h.in, plan.tile_h);
  grid.image_tiles = ceil_div(problem.batch, int64_t{plan.tile_n});
  return grid;
}

void add_nhwc_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  const int64_t vector = 16 / element_bytes(problem.dtype);
  if (problem.direction == Direction::kGradWeight || problem.groups != 1 || problem.c_in % vector != 0 ||
      problem.c_out % vector != 0 || !source_has_map(problem) || !is_channels_last(result_stride(problem))) {
    return;
  }
  if (int64_t{problem.h.kernel} * problem.w.kernel > INT16_MAX) return;
  Work work{};
  if (!make_tap_program(problem, &work.program, false) || work.program.source_step_h > kMostBoxStep ||
      work.program.source_step_w > kMostBoxStep) {
    return;
  }
  if (work.program.num_runs > kNhwcMostWindows || work.program.total_taps == 0) return;
  const bool forward = problem.direction == Direction::kForward;
  work.positions_h = forward ? num_positions(problem.h, 0) : problem.h.in;
  work.positions_w = forward ? num_positions(problem.w, 0) : problem.w.in;
  work.windows = forward ? 1 : work.program.num_runs;
  work.taps = static_cast<double>(work.program.total_taps) / (forward ? work.program.num_runs : 1);
  work.k_channels = forward ? problem.c_in : problem.c_out;
  work.n_channels = forward ? problem.c_out : problem.c_in;
  for (int32_t run = 0; run < work.program.num_runs; ++run) {
    const NhwcWindow window = make_nhwc_window(work.program, run);
    work.extra_h = std::max(work.extra_h, window.extra_h);
    work.extra_w = std::max(work.extra_w, window.extra_w);
  }
  for (int32_t index = 0; index < kNumNhwcInstances; ++index) {
    const NhwcInstance& instance = kNhwcInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    Plan begun = begin_plan(instance.name, problem.precision, NhwcTile{});
    NhwcTile& tile = tile_of<NhwcTile>(begun);
    begun.threads = kNhwcThreads;
    tile.instance = index;
    tile.direct = is_direct(problem);
    begun.source_on_vectors = true;
    begun.weight_on_vectors = tile.direct;
    const int64_t channels = nhwc_row_bytes(instance.k_steps) / element_bytes(problem.dtype);
    const int64_t packed_tiles =
        ceil_div(work.n_channels, int64_t{instance.block_n}) * ceil_div(work.k_channels, channels);
    if (packed_tiles > kLimit / work.program.total_taps) continue;
    if (!tile.direct) {
      begun.packed_bytes = begun.workspace_bytes = packed_tiles * work.program.total_taps * nhwc_tap_bytes(instance);
    }
    for (const bool staged : {false, true}) {
      tile.staged = staged;
      for (const Plan& plan : tiles(problem, device, instance, work, begun)) {
        if (tile_of<NhwcTile>(plan).num_tiles <= kLimit) plans->push_back(plan);
      }
    }
  }
}

}  // namespace convt
