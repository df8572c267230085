#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "nhwc_sm90a/instances.h"
#include "nhwc_sm90a/layout.h"
#include "nhwc_sm90a/params.h"
#include "plan/tap_program.h"
#include "problem/volume.h"

namespace convt {
namespace {

void set_windows(const StackedProblem& problem, const TapProgram& program, const pack::Params& weights,
                 nhwc_sm90a::Params* params) {
  const int32_t kernel_w = problem.w.kernel;
  params->one_tap = true;
  for (int32_t run = 0; run < program.num_runs; ++run) {
    const TapRun& taps = program.runs[run];
    params->one_tap = params->one_tap && taps.num_h * taps.num_w <= 1;
    const NhwcWindow window = make_nhwc_window(program, run);
    const int32_t phase_h = program.phases_h == 1 ? 0 : run / program.phases_w;
    nhwc_sm90a::Window& to = params->windows[run];
    to.column = window.column;
    to.plane = params->step_n > 1 ? window.row / params->step_h : 0;
    to.row = window.row - to.plane * params->step_h;
    to.num_h = static_cast<int16_t>(taps.num_h);
    to.num_w = static_cast<int16_t>(taps.num_w);
    to.tap = static_cast<int16_t>(taps.kh * kernel_w + taps.kw);
    to.tap_row_step = static_cast<int16_t>(taps.kh_step * kernel_w);
    to.tap_column_step = static_cast<int16_t>(taps.kw_step);
    to.first = window.first_row * params->box_w + window.first_column;
    to.row_step = taps.row_step * params->box_w;
    to.column_step = static_cast<int16_t>(taps.column_step);
    to.packed_step = program.num_taps[phase_h] * weights.tap_bytes;
    to.packed = weights.packed_phase_begin[phase_h] + int64_t{taps.first_tap} * weights.tap_bytes;
  }
}

// Splits a tile's stages into `count` shares with about equal numbers of taps.
void set_shares(const TapProgram& program, bool forward, int32_t count, nhwc_sm90a::Params* params) {
  const auto taps_of = [&](int32_t stage) {
    if (forward) return 1;  // each stage has one window
    const TapRun& taps = program.runs[stage / params->num_chunks];
    return taps.num_h * taps.num_w;
  };
  const int32_t stages = params->num_chunks * params->num_windows;
  int64_t all = 0, before = 0;
  for (int32_t stage = 0; stage < stages; ++stage) all += taps_of(stage);
  int32_t share = 1;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int32_t taps = taps_of(stage);
    for (; share < count && (2 * before + taps) * count >= 2 * all * share; ++share) {
      params->share_begin[share] = stage;
    }
    before += taps;
  }
  for (; share <= count; ++share) params->share_begin[share] = stages;
}

// Tensor map of the unpacked weight. Column 8 * j + 2 * q + i of a block of 8 * b columns is channel 2 * b * q + 2 * j
// + i.
void set_direct_weights(const ConvTProblem& problem, const NhwcTile& plan, const pack::Params& weights, const void* w,
                        int32_t channels, nhwc_sm90a::Params* params) {
  const int32_t b = nhwc_interleaved(static_cast<int32_t>(element_bytes(problem.dtype)));
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel, n_stride = weights.n_stride;
  const int64_t pair = 2 * n_stride, quad = 2 * b * n_stride, block = 8 * b * n_stride;
  TensorBox box;
  if (weights.k_channels % channels == 0 && (taps == 1 || nhwc_tap_stride(problem) == weights.k_channels)) {
    params->tap_channels = weights.k_channels;
    box = {w,
           {taps * weights.k_channels, 2, 4, b, weights.n_channels / (8 * b)},
           {n_stride, quad, pair, block},
           {channels, 2, 4, b, plan.block_n / (8 * b)},
           5};
  } else {
    // The pairs of all blocks form one dimension.
    box = {w,
           {weights.k_channels, 2, 4, weights.n_channels / 2 - 3 * b, taps},
           {n_stride, quad, pair, nhwc_tap_stride(problem)},
           {channels, 2, 4, b, 1},
           5};
  }
  box.swizzle_bytes = nhwc_row_bytes(kNhwcInstances[plan.instance].k_steps);
  box.rounded = problem.dtype == DataType::kFloat32;
  params->weights = make_tensor_map(problem.dtype, box);
}

// The source with the layout of `pixels`: as a tensor map, or as parameters for gathering threads.
void set_source(const StackedProblem& problem, const NhwcTile& plan, const TapProgram& program, const Pixels& pixels,
                const void* source, nhwc_sm90a::Params* params) {
  const NhwcInstance& instance = kNhwcInstances[plan.instance];
  const int64_t element = element_bytes(problem.dtype);
  params->group_bytes = nhwc_group_places(instance, plan) * nhwc_row_bytes(instance.k_steps);
  params->gathers = plan.gathers;
  if (plan.gathers) {
    const int64_t* from = source_stride(problem);
    const int64_t last = (problem.batch - 1) * from[0] + (problem.groups * pixels.channels - 1) * from[1] +
                         int64_t{pixels.rows - 1} * from[2] + int64_t{pixels.columns - 1} * from[3];
    params->source = source;
    params->last_element = reinterpret_cast<uintptr_t>(source) + last * element;
    params->ends_in_word = element == 2 && params->last_element % 4 == 0;
    for (int axis = 0; axis < 4; ++axis) params->source_step[axis] = from[axis] * element;
    params->source_h = pixels.rows;
    params->source_w = pixels.columns;
    params->k_channels = pixels.channels;
    params->channels_inner = is_channels_last(from);
    params->num_places = plan.box_w * plan.box_h * plan.tile_n;
    params->by_box_w = FastDivmod::of(plan.box_w);
    params->by_box_h = FastDivmod::of(plan.box_h);
    return;
  }
  const int32_t row_bytes = nhwc_row_bytes(instance.k_steps);
  TensorBox box{
      source,
      {pixels.channels, problem.groups, pixels.columns, pixels.rows / params->step_n, problem.batch * params->step_n},
      {pixels.group_stride, pixels.column_stride, pixels.row_stride, pixels.image_stride / params->step_n},
      {static_cast<int32_t>(row_bytes / element), 1, plan.box_w, plan.box_h, plan.tile_n},
      5};
  box.step[2] = program.source_step_w;
  box.step[3] = params->step_h;
  box.step[4] = params->step_n;
  box.swizzle_bytes = row_bytes;
  // If no tap reads some columns, L2 promotion is limited to the size of a pixel.
  const int64_t pixel_bytes = problem.groups * pixels.group_stride * element;
  if (program.sub_w < program.source_step_w && pixel_bytes < 256) box.fetched_bytes = pixel_bytes < 128 ? 64 : 128;
  box.rounded = params->group_bytes > 0 && problem.dtype == DataType::kFloat32;
  params->map = make_tensor_map(problem.dtype, box);
}

nhwc_sm90a::Params convolve_params(const StackedProblem& problem, const NhwcTile& plan, const TapProgram& program,
                                   const pack::Params& weights, const Pointers& pointers) {
  const NhwcInstance& instance = kNhwcInstances[plan.instance];
  const NhwcGrid grid = make_nhwc_grid(problem, program, plan);
  const bool forward = problem.direction == Direction::kForward;
  nhwc_sm90a::Params params{};
  const auto channels = static_cast<int32_t>(nhwc_row_bytes(instance.k_steps) / element_bytes(problem.dtype));
  params.packed = plan.direct ? nullptr : weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(result_stride(problem), 4, params.result_stride);
  params.batch = static_cast<int32_t>(problem.batch);
  params.result_h = forward ? problem.h.out : problem.h.in;
  params.result_w = forward ? problem.w.out : problem.w.in;
  params.n_channels = weights.n_channels;
  params.channels_last = is_channels_last(params.result_stride);
  const int32_t unit = storable_neighbours(problem, params.result);
  params.unit = params.channels_last ? unit : 1;
  params.rows = plan.rows;
  if (plan.rows) {
    const int32_t scale_w = forward ? problem.w.stride : 1, run = plan.tile_w * scale_w;
    params.pairs = unit >= 2 && run % 2 == 0 && params.result_w % 2 == 0;
    params.row_pitch = nhwc_row_pitch(params.channels_last, plan.tile_w * plan.tile_h * plan.tile_n, scale_w,
                                      static_cast<int32_t>(element_bytes(problem.dtype)));
    while (1 << params.pixel_lanes_log2 < std::min(kNhwcRowChannels, params.n_channels)) ++params.pixel_lanes_log2;
    params.by_run = FastDivmod::of(run);
    params.by_tile_h = FastDivmod::of(plan.tile_h);
  }
  params.interleaved_phases_w = FastDivmod::of(plan.interleaved_phases_w);
  params.windows_of_row = grid.phases_w;
  params.step_n = problem.h.kernel / problem.plane_rows;
  params.step_h = program.source_step_h / params.step_n;
  params.step_w = program.source_step_w;
  params.scale_h = forward ? problem.h.stride : 1;
  params.scale_w = forward ? problem.w.stride : 1;
  params.channel_tiles = FastDivmod::of(static_cast<int32_t>(problem.groups) * grid.channel_tiles);
  params.group_tiles = FastDivmod::of(grid.channel_tiles);
  params.phases_w = FastDivmod::of(grid.phases_w / plan.interleaved_phases_w);
  params.phases = FastDivmod::of(grid.phases_h * grid.phases_w / plan.interleaved_phases_w);
  params.w_tiles = FastDivmod::of(grid.w_tiles);
  params.h_tiles = FastDivmod::of(grid.h_tiles);
  params.whole_tiles = static_cast<int32_t>(plan.num_tiles - plan.split_tiles);
  params.num_units = static_cast<int32_t>(params.whole_tiles + plan.split_tiles * plan.k_splits);
  params.k_splits = FastDivmod::of(plan.k_splits);
  params.sums = static_cast<char*>(pointers.workspace);
  params.tile_w = plan.tile_w;
  params.tile_h = plan.tile_h;
  params.tile_n = plan.tile_n;
  params.by_row = FastDivmod::of(plan.tile_w);
  params.by_image = FastDivmod::of(plan.tile_h);
  params.box_w = plan.box_w;
  params.box_h = plan.box_h;
  params.splits = plan.splits;
  params.num_chunks = plan.num_chunks;
  params.num_windows = plan.num_windows;
  params.box_bytes = plan.box_w * plan.box_h * plan.tile_n * nhwc_row_bytes(instance.k_steps);
  params.stage_bytes = plan.stage_bytes;
  params.source_slots = plan.source_slots;
  params.weight_slots = plan.weight_slots;
  params.slot_taps = plan.slot_taps;
  params.weights_begin = plan.weights_begin;
  params.staged_begin = plan.staged_begin;
  params.bias_begin = plan.bias_begin;
  params.barriers_begin = plan.barriers_begin;
  params.packed_tile_step = weights.packed_tile_step;
  set_windows(problem, program, weights, &params);
  set_shares(program, forward, std::max(plan.splits, plan.k_splits), &params);
  if (plan.direct) set_direct_weights(problem, plan, weights, pointers.w, channels, &params);
  return params;
}

// One tensor map per phase of the result. Its boxes are tiles.
void set_results(const ConvTProblem& problem, const NhwcTile& plan, nhwc_sm90a::Params* params) {
  params->staged = plan.staged && is_aligned(params->result, 16);
  if (!params->staged) return;
  const int64_t* to = params->result_stride;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  for (int32_t phase = 0; phase < params->phases.value; ++phase) {
    const int32_t phase_h = phase / params->phases_w.value, phase_w = phase % params->phases_w.value;
    TensorBox box{static_cast<const char*>(params->result) + (phase_h * to[2] + phase_w * to[3]) * element,
                  {params->n_channels, ceil_div(params->result_w - phase_w, params->scale_w),
                   ceil_div(params->result_h - phase_h, params->scale_h), params->batch},
                  {params->scale_w * to[3], params->scale_h * to[2], to[0]},
                  {nhwc_staged_row_bytes(plan.block_n, element) / element, plan.tile_w, plan.tile_h, plan.tile_n}};
    box.swizzle_bytes = nhwc_staged_row_bytes(plan.block_n, element);
    params->results[phase] = make_tensor_map(problem.dtype, box);
  }
}

}  // namespace

void launch_nhwc(const ConvTProblem& asked, const Plan& plan, const NhwcTile& tile, const Pointers& pointers,
                 cudaStream_t stream) {
  StackedProblem problem;
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumNhwcInstances || (!tile.direct && pointers.packed == nullptr) ||
      !stack_planes(asked, &problem) || !make_tap_program(problem, &program, tile.box_per_tap)) {
    throw std::runtime_error("convt_ext: no NHWC kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const void* source = problem.direction == Direction::kForward ? pointers.x : pointers.y;
  check_workspace(plan, pointers.workspace);
  uint32_t* arrived = nullptr;
  if (tile.k_splits > 1) {
    const int64_t before = nhwc_part_sums_bytes(kNhwcInstances[tile.instance].blocks, tile);
    arrived = reinterpret_cast<uint32_t*>(static_cast<char*>(pointers.workspace) + before);
    fill_zero(arrived, tile.split_tiles * 4, plan.kernel, stream);
  }
  Pixels pixels = source_pixels(problem);
  if (tile.packs_source) {
    pixels = packed_pixels(problem, pixels);
    char* packed = static_cast<char*>(pointers.workspace) + tile.partials_bytes;
    launch_pack_pixels(problem, plan, pixels, source_stride(problem), problem.batch, source, packed, stream);
    source = packed;
  }
  const void* const kernel = nhwc_sm90a::kernel_of(tile.instance);
  const int32_t k_steps = kNhwcInstances[tile.instance].k_steps;
  PackLaunch packing = make_pack_launch(problem, program, tile.block_n, k_steps, tile.num_chunks,
                                        nhwc_tap_bytes(kNhwcInstances[tile.instance]), pointers.w, pointers.packed);
  packing.params.interleaved = nhwc_interleaved(static_cast<int32_t>(element_bytes(problem.dtype)));
  packing.params.rows = true;
  if (!tile.direct && !pointers.is_packed && packing.blocks > 0) launch_pack(problem, plan, packing, stream);
  nhwc_sm90a::Params params = convolve_params(problem, tile, program, packing.params, pointers);
  set_source(problem, tile, program, pixels, source, &params);
  params.arrived = arrived;
  set_results(problem, tile, &params);
  launch_kernel(kernel, grid_of(plan, !tile.direct && !pointers.is_packed, tile.splits), stream, params);
}

}  // namespace convt
