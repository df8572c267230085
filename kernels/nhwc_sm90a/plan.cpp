#include "plan/plan.h"

#include <algorithm>

#include "nhwc_sm90a/estimate.h"
#include "nhwc_sm90a/layout.h"
#include "plan/device.h"
#include "plan/shared_memory.h"
#include "plan/tap_program.h"
#include "plan/tensor_map.h"
#include "problem/volume.h"

namespace convt {
namespace {

constexpr int32_t kMostSourceSlots = 8;
constexpr int32_t kMostWeightSlots = 12;
constexpr int32_t kMostOfBox = 256;   // elements along a dimension of a tensor map's box
constexpr int32_t kMostBoxStep = 8;   // element stride of a tensor map's box
constexpr int32_t kMostStep = 1024;   // source step that gathering threads support
constexpr int32_t kStageAlignment = 1024;  // alignment of swizzled rows
constexpr int32_t kSlotBytes = 8192;       // target size of a weight slot, which holds several small taps
// Number of best plans per instance: for a source with a tensor map, for one whose map only needs an aligned address,
// and for one without a map, gathered or packed. The best plan that splits its last wave is added.
constexpr size_t kTiles = 3, kTilesOfAddress = 1, kTilesWithoutMap = 2;
constexpr double kMostPacked = 1 << 30;  // bytes of a packed source

constexpr int64_t kLimit = int64_t{1} << 30;  // limit of 32-bit counts in kernels

// Whether a tensor map can describe the source: contiguous channels, pixels and groups aligned to 16 bytes.
bool source_has_map(const ConvTProblem& problem) {
  const Pixels pixels = source_pixels(problem);
  const int64_t element = element_bytes(problem.dtype);
  return is_channels_last(source_stride(problem)) && has_map_stride(problem.groups, pixels.group_stride, element) &&
         has_map_stride(problem.batch, pixels.image_stride, element) &&
         has_map_stride(pixels.rows, pixels.row_stride, element) &&
         has_map_stride(pixels.columns, pixels.column_stride, element);
}

// Bytes of the packed source.
double packed_source_bytes(const ConvTProblem& problem) {
  const Pixels pixels = source_pixels(problem);
  return static_cast<double>(packed_pixel(problem, pixels)) * pixels.rows * pixels.columns *
         static_cast<double>(problem.batch * element_bytes(problem.dtype));
}

// Whether tensor maps can describe each phase of the result.
bool result_has_maps(const ConvTProblem& problem) {
  const bool forward = problem.direction == Direction::kForward;
  const int64_t* stride = result_stride(problem);
  const int64_t element = element_bytes(problem.dtype);
  // If a phase has more than one position, 64 bits hold the distance.
  const auto has_axis = [&](const Axis& axis, int64_t step) {
    const int32_t positions = forward ? num_positions(axis, 0) : axis.in;
    const bool phases_begin = !forward || num_phases(axis) == 1 || step * element % 16 == 0;
    return phases_begin && (positions <= 1 || has_map_stride(positions, (forward ? axis.stride : 1) * step, element));
  };
  return has_map_stride(problem.batch, stride[0], element) && has_axis(problem.h, stride[2]) &&
         has_axis(problem.w, stride[3]);
}

// Completes the plan from its instance, tile and number of splits. Returns false if it does not fit.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance, const NhwcWork& work,
             Plan* whole) {
  NhwcTile& plan = tile_of<NhwcTile>(*whole);
  plan.box_w = plan.tile_w + work.extra_w;
  plan.box_h = plan.tile_h + work.extra_h;
  const int32_t step_h = work.step_h, step_w = work.program.source_step_w;
  if (plan.box_w > kMostOfBox || plan.box_h > kMostOfBox) return false;
  if (!plan.gathers && ((plan.box_w - 1) * step_w + 1 > kMostOfBox || (plan.box_h - 1) * step_h + 1 > kMostOfBox ||
                        (plan.tile_n - 1) * work.step_n + 1 > kMostOfBox)) {
    return false;
  }
  const NhwcGrid grid = make_nhwc_grid(problem, work.program, plan);
  plan.num_tiles = problem.groups * grid.channel_tiles * grid.phases_w * grid.phases_h * grid.w_tiles * grid.h_tiles *
                   grid.image_tiles;
  plan.num_windows = work.windows;
  const int64_t channels = nhwc_row_bytes(instance.k_steps) / element_bytes(problem.dtype);
  plan.num_chunks = static_cast<int32_t>(ceil_div(work.k_channels, channels));
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  // Clusters are placed within groups of SMs whose size is not a multiple of 4.
  const int32_t clustered = plan.splits > 2 ? device.num_sms * 7 / 8 : device.num_sms;
  if (plan.splits > 1 && (!nhwc_shares_tiles(instance.ctas) || plan.num_tiles * plan.splits > clustered ||
                          plan.num_chunks * plan.num_windows < 2 * plan.splits ||
                          nhwc_least_share(element) * plan.splits > plan.block_n)) {
    return false;
  }
  const int64_t box_bytes = int64_t{plan.box_w} * plan.box_h * plan.tile_n * nhwc_row_bytes(instance.k_steps);
  const int32_t tap_bytes = nhwc_tap_bytes(instance), group_places = nhwc_group_places(instance, plan);
  if (nhwc_reads_boxes_alone(instance.k_steps) && group_places == 0) return false;
  plan.slot_taps = 1;
  if (group_places > 0) {
    plan.slot_taps = std::max(1, std::min(work.most_taps, kSlotBytes / tap_bytes));
  }
  const int32_t slot_bytes = plan.slot_taps * tap_bytes;
  // For the widest tiles, stores from registers cost less than the pipeline slots that shared-memory stores would take.
  if (plan.staged &&
      (plan.splits > 1 || instance.block_n > 128 || problem.groups > 1 || !is_channels_last(result_stride(problem)) ||
       work.program.phases_h * work.program.phases_w > kNhwcMostStagedPhases || !result_has_maps(problem))) {
    return false;
  }
  const bool forward = problem.direction == Direction::kForward;
  const bool channels_last = is_channels_last(result_stride(problem));
  plan.interleaved_phases_w = plan.rows && !channels_last ? work.program.phases_w : 1;
  const int32_t positions = plan.tile_w * plan.tile_h * plan.tile_n;
  int32_t staged_bytes = plan.staged ? nhwc_staged_bytes(instance.blocks, instance.block_n, element) : 0;
  if (plan.rows) {
    const int32_t pitch = nhwc_row_pitch(channels_last, positions, forward ? problem.w.stride : 1, element);
    const int32_t channels = plan.interleaved_phases_w > 1 ? instance.block_n : kNhwcRowChannels;
    staged_bytes = nhwc_rows_bytes(channels_last, positions, channels, pitch, element);
  }
  const int32_t barrier_bytes = 16 * (kMostSourceSlots + kMostWeightSlots + 1);
  const int32_t gathered_bytes = plan.gathers ? nhwc_gathered_bytes(element) : 0;
  const int64_t left =
      shared_room(device, instance.ctas) - barrier_bytes - staged_bytes - 16 - 4 * instance.block_n - gathered_bytes;
  const int64_t stage_bytes = round_up(box_bytes, kStageAlignment);
  plan.source_slots = 0;
  for (int32_t slots = 2; slots <= kMostSourceSlots; ++slots) {
    // As many source slots as leave an adequate number of weight slots: at least 4 and at most 6, or 4 for the widest
    // instances with many taps. tf32x3 reads weights three times as long and needs half as many.
    const int32_t enough = instance.block_n > 128 && work.taps > work.windows ? 4 : 6;
    const auto wanted = std::min(enough, std::max(4, static_cast<int32_t>(slots * work.taps / work.windows))) /
                        nhwc_terms(instance.precision);
    const int32_t wanted_bytes = plan.slot_taps > 1 ? std::max(wanted * tap_bytes, 3 * slot_bytes) : wanted * tap_bytes;
    if (slots * stage_bytes + wanted_bytes <= left) plan.source_slots = slots;
  }
  if (plan.source_slots == 0) return false;
  plan.stage_bytes = static_cast<int32_t>(stage_bytes);
  SharedMemory smem;
  smem.take(plan.source_slots * plan.stage_bytes);
  plan.weight_slots = static_cast<int32_t>(std::min<int64_t>((left - smem.bytes()) / slot_bytes, kMostWeightSlots));
  plan.weights_begin = smem.take(plan.weight_slots * slot_bytes);
  plan.staged_begin = smem.take(staged_bytes);
  plan.barriers_begin = smem.take(barrier_bytes, 16);
  plan.bias_begin = smem.take(4 * instance.block_n + gathered_bytes);
  whole->shared_bytes = smem.bytes();
  if (group_places > 0) {
    // Descriptors read whole blocks of positions, even past the end of the tile and its box.
    const int32_t most = 64 * kNhwcConsumers * instance.blocks;
    const int32_t places = (plan.tile_w % 64 == 0 ? most / plan.tile_w * plan.box_w : most / 8 * group_places) +
                           work.extra_h * plan.box_w + work.extra_w;
    const int64_t last_slot = (plan.source_slots - 1) * stage_bytes;
    if (last_slot + int64_t{places} * nhwc_row_bytes(instance.k_steps) > whole->shared_bytes) return false;
  }

  plan.k_splits = 1;
  plan.split_tiles = plan.partials_bytes = 0;
  if (plan.splits > 1 && nhwc_sum_bytes(instance.blocks, plan.block_n) > plan.staged_begin) return false;
  whole->num_blocks =
      plan.splits > 1 ? plan.num_tiles * plan.splits
                      : std::min<int64_t>(plan.num_tiles / plan.interleaved_phases_w, device.num_sms * instance.ctas);
  return true;
}

// Splits the tiles of the last wave among the SMs that would be idle. Returns whether that is faster. `bound_us`: lower
// bound of such plans.
bool divide(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance, const NhwcWork& work,
            const Plan& plan, double bound_us, Plan* best) {
  constexpr double kWorthIt = 0.97;
  if (bound_us >= kWorthIt * plan.estimate_us) return false;
  const NhwcTile& tile = tile_of<NhwcTile>(plan);
  const int64_t divided = tile.num_tiles % device.num_sms;
  *best = plan;
  if (!nhwc_shares_tiles(instance.ctas) || tile.splits > 1 || tile.interleaved_phases_w > 1 || divided == 0)
    return false;
  const int64_t stages = int64_t{tile.num_chunks} * tile.num_windows;
  const int64_t most = std::min({int64_t{kNhwcMostParts}, device.num_sms / divided, stages / 2});
  for (int32_t parts = 2; parts <= most; ++parts) {
    Plan made = plan;
    NhwcTile& of = tile_of<NhwcTile>(made);
    of.k_splits = parts;
    of.split_tiles = divided;
    of.partials_bytes = whole_workspace(nhwc_part_sums_bytes(instance.blocks, of) + divided * 4);
    made.workspace_bytes += of.partials_bytes;
    made.num_blocks = std::min<int64_t>(tile.num_tiles - divided + divided * parts, device.num_sms);
    estimate_nhwc(problem, device, instance, work, &made);
    if (made.estimate_us < best->estimate_us) *best = made;
  }
  return best->estimate_us < kWorthIt * plan.estimate_us;
}

// The `most` best tiles of an instance, the best first, then the best plan that splits its last wave, if it is faster.
// Plans with estimates above `most_us` may be omitted.
std::vector<Plan> tiles(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                        const NhwcWork& work, size_t most, double most_us, const Plan& begun) {
  std::vector<Plan> plans, divided;
  const int32_t positions = 64 * kNhwcConsumers * instance.blocks;
  const auto add = [&](int32_t tile_w) {
    int32_t last = 0;
    for (int32_t rows = std::min(positions / tile_w, work.positions_h); rows >= 1; --rows) {
      // Tile heights that divide the rows as evenly as possible.
      const int32_t tile_h = ceil_div(work.positions_h, ceil_div(work.positions_h, rows));
      if (tile_h == last) continue;
      last = tile_h;
      Plan plan = begun;
      NhwcTile& tile = tile_of<NhwcTile>(plan);
      tile.tile_w = tile_w;
      tile.tile_h = tile_h;
      tile.tile_n = static_cast<int32_t>(std::min<int64_t>(positions / (tile_w * tile_h), problem.batch));
      tile.block_n = instance.block_n;
      const double bound_us = nhwc_bound_us(problem, device, instance, work, plan);
      if (bound_us > most_us) continue;
      for (tile.splits = 1; tile.splits <= kNhwcMostSplits; tile.splits *= 2) {
        // Prefer stores of whole rows if their buffer fits.
        tile.rows = tile.splits == 1 && !tile.staged && nhwc_has_rows(problem);
        if (!lay_out(problem, device, instance, work, &plan)) {
          if (!tile.rows) continue;
          tile.rows = false;
          if (!lay_out(problem, device, instance, work, &plan)) continue;
        }
        estimate_nhwc(problem, device, instance, work, &plan);
        plans.push_back(plan);
        Plan made;
        if (divide(problem, device, instance, work, plan, bound_us, &made)) divided.push_back(made);
      }
    }
  };
  if (work.positions_w <= positions) add(work.positions_w);
  // Wide tiles first: on equal estimates they have the fewest bank conflicts. Narrow tiles cover small images without
  // idle positions.
  for (int32_t tile_w = 64; tile_w >= 1; tile_w /= 2) {
    if (tile_w < work.positions_w && (tile_w >= 8 || work.positions_w % tile_w == 0)) add(tile_w);
  }
  for (int32_t count = 2; count <= 4; ++count) {
    const int32_t tile_w = ceil_div(work.positions_w, count);
    if (tile_w <= positions && tile_w > 8 && (tile_w % 8 != 0 || tile_w > 64)) add(tile_w);
  }
  const auto is_faster = [](const Plan& a, const Plan& b) { return a.estimate_us < b.estimate_us; };
  std::stable_sort(plans.begin(), plans.end(), is_faster);
  if (plans.size() > most) plans.resize(most);
  const auto best = std::min_element(divided.begin(), divided.end(), is_faster);
  if (best != divided.end() && is_faster(*best, plans.front())) plans.insert(plans.begin(), *best);
  return plans;
}

// Whether a tensor map can load unpacked weights in the layout of wgmma. The largest stride of the map is that of a
// block of 8 columns or between the members of its pairs. The innermost dimension may contain all taps.
bool is_direct(const ConvTProblem& problem) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  return problem.direction == Direction::kGradInput && problem.groups == 1 &&
         (problem.precision == Precision::kHalf || problem.precision == Precision::kTf32) && problem.w_stride[1] == 1 &&
         problem.c_in % nhwc_direct_channels(element) == 0 &&
         has_map_stride(problem.c_in, problem.w_stride[0], element) &&
         problem.w_stride[0] < kMapStrideLimit / (8 * nhwc_interleaved(element) * element) &&
         nhwc_tap_stride(problem) > 0 && has_map_stride(2, nhwc_tap_stride(problem), element) &&
         problem.c_out <= kLimit / taps;
}

// Computes the tile-independent properties, with `apart` one box per tap. Returns false if a kernel limit is exceeded.
bool make_work(const StackedProblem& problem, bool apart, NhwcWork* to) {
  NhwcWork& work = *to;
  work.box_per_tap = apart;
  if (!make_tap_program(problem, &work.program, apart)) return false;
  if (std::max(work.program.source_step_h, work.program.source_step_w) > kMostStep) return false;
  work.step_n = problem.h.kernel / problem.plane_rows;
  work.step_h = work.program.source_step_h / work.step_n;
  if (work.program.num_runs > kNhwcMostWindows || work.program.total_taps == 0) return false;
  const bool forward = problem.direction == Direction::kForward;
  work.positions_h = forward ? num_positions(problem.h, 0) : problem.h.in;
  work.positions_w = forward ? num_positions(problem.w, 0) : problem.w.in;
  work.windows = forward ? 1 : work.program.num_runs;
  work.taps = static_cast<double>(work.program.total_taps) / (forward ? work.program.num_runs : 1);
  work.k_channels = (forward ? problem.c_in : problem.c_out) / problem.groups;
  work.n_channels = (forward ? problem.c_out : problem.c_in) / problem.groups;
  for (int32_t run = 0; run < work.program.num_runs; ++run) {
    const NhwcWindow window = make_nhwc_window(work.program, run);
    work.extra_h = std::max(work.extra_h, window.extra_h);
    work.extra_w = std::max(work.extra_w, window.extra_w);
    work.most_taps = std::max(work.most_taps, work.program.runs[run].num_h * work.program.runs[run].num_w);
  }
  return true;
}

// How the source is loaded, and the number of plans per instance to keep.
struct NhwcSource {
  bool gathers, packs;
  size_t most;
};

// Adds the plans of one instance.
void add_plans(const ConvTProblem& problem, const DeviceInfo& device, const NhwcWork& work, int32_t index,
               const NhwcSource& source, Candidates* plans) {
  const NhwcInstance& instance = kNhwcInstances[index];
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  if (source.gathers && !nhwc_can_gather(instance.k_steps, element)) return;
  Plan begun = begin_plan(instance.name, problem.precision, NhwcTile{});
  NhwcTile& tile = tile_of<NhwcTile>(begun);
  begun.threads = kNhwcThreads;
  tile.instance = index;
  tile.direct = is_direct(problem);
  tile.gathers = source.gathers;
  tile.packs_source = source.packs;
  tile.box_per_tap = work.box_per_tap;
  begun.source_on_vectors = !source.gathers && !source.packs;
  begun.weight_on_vectors = tile.direct;
  const int64_t channels = nhwc_row_bytes(instance.k_steps) / element;
  const int64_t packed_tiles =
      problem.groups * ceil_div(work.n_channels, int64_t{instance.block_n}) * ceil_div(work.k_channels, channels);
  if (packed_tiles > kLimit / work.program.total_taps) return;
  if (!tile.direct) {
    begun.packed_bytes = packed_tiles * work.program.total_taps * nhwc_tap_bytes(instance);
  }
  begun.workspace_bytes = begun.packed_bytes;
  if (source.packs) begun.workspace_bytes += static_cast<int64_t>(packed_source_bytes(problem));
  for (const bool staged : {false, true}) {
    tile.staged = staged;
    for (const Plan& plan : tiles(problem, device, instance, work, source.most, plans->most_us, begun)) {
      if (tile_of<NhwcTile>(plan).num_tiles <= kLimit) plans->push_back(plan);
    }
    plans->update_most();
  }
}

// Three-dimensional layers: gradients of the input in channels_last, where images and planes are one axis.
bool joins_planes(const ConvTProblem& asked, const StackedProblem& problem) {
  const bool joined = asked.batch == 1 || (problem.x_batch == problem.planes * problem.x_stride[0] &&
                                           problem.y_batch == problem.planes * problem.y_stride[0]);
  return problem.direction == Direction::kGradInput && is_channels_last(problem.x_stride) &&
         is_channels_last(problem.y_stride) && joined &&
         has_map_stride(asked.d.out, asked.y_plane, element_bytes(problem.dtype));
}

}  // namespace

void add_nhwc_plans(const ConvTProblem& asked, const DeviceInfo& device, Candidates* plans) {
  StackedProblem problem;
  if (!stack_planes(asked, &problem) || (is_volume(asked) && !joins_planes(asked, problem))) return;
  if (problem.direction == Direction::kGradWeight || result_stride(problem)[1] > INT32_MAX) return;
  if (int64_t{problem.h.kernel} * problem.w.kernel > INT16_MAX) return;
  NhwcWork work{}, apart{};
  if (!make_work(problem, false, &work)) return;
  // If the image is small, a box consists mostly of the distance between taps.
  const int64_t box = (int64_t{work.positions_h} + work.extra_h) * (work.positions_w + work.extra_w);
  const bool is_apart = problem.direction == Direction::kGradInput &&
                        box >= 4 * int64_t{work.positions_h} * work.positions_w && make_work(problem, true, &apart);
  const auto add = [&](const NhwcSource& source) {
    for (int32_t index = 0; index < kNumNhwcInstances; ++index) {
      const NhwcInstance& instance = kNhwcInstances[index];
      if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
      add_plans(problem, device, work, index, source, plans);
      if (is_apart) add_plans(problem, device, apart, index, source, plans);
    }
  };
  const bool has_boxes = std::max({work.step_n, work.step_h, work.program.source_step_w}) <= kMostBoxStep;
  if (has_boxes && source_has_map(problem)) {
    add({false, false, kTiles});
    if (!is_volume(asked)) add({true, false, kTilesOfAddress});
  } else if (!is_volume(asked)) {
    add({true, false, kTilesWithoutMap});
    if (has_boxes && packed_source_bytes(problem) <= kMostPacked) add({false, true, kTilesWithoutMap});
  }
}

}  // namespace convt
