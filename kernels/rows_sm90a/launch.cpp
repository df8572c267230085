#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "plan/tap_program.h"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/strided_layout.h"
#include "rows_sm90a/strided_params.h"
#include "rows_sm90a/window_layout.h"
#include "rows_sm90a/window_params.h"

namespace convt {

CONVT_KERNEL_TABLE(rows_sm90a::strided, CONVT_STRIDED_INSTANCES)

namespace {

// A slot has all taps of a stage and H phase as they are packed, for a 3 x 3 kernel of both H phases, or those of a row
// of the gradient's window: first of the even columns, then of the odd ones, which are packed apart.
void set_weight_copies(const TapProgram& program, const pack::Params& weights, bool forward,
                       rows_sm90a::strided::Params* params) {
  const int32_t tap_bytes = weights.tap_bytes;
  rows_sm90a::strided::WeightCopy* copy = params->copies;
  if (forward) {
    const bool all_phases = program.num_taps[0] != program.num_taps[1];
    params->num_copies = all_phases ? 2 : 1;
    for (int32_t phase = 0; phase < 2; ++phase) {
      const int32_t before = all_phases && phase > 0 ? program.num_taps[0] * tap_bytes : 0;
      const int32_t bytes = program.num_taps[phase] * tap_bytes;
      *copy++ = {weights.packed_phase_begin[phase], bytes, before, bytes};
    }
    return;
  }
  params->num_copies = 2;
  const int32_t rows = program.runs[0].num_h + program.runs[2].num_h;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t odd = 0; odd < 2; ++odd) {
      const TapRun& run = program.runs[row % 2 * 2 + odd];
      const int32_t first_tap = run.first_tap + row / 2 * run.num_w;
      *copy++ = {int64_t{first_tap} * tap_bytes, program.num_taps[0] * tap_bytes, 2 * odd * tap_bytes,
                 run.num_w * tap_bytes};
    }
  }
}

rows_sm90a::strided::Params convolve_params(const ConvTProblem& problem, const StridedTile& plan,
                                            const TapProgram& program, const pack::Params& weights,
                                            const Pointers& pointers) {
  const StridedGrid grid = make_strided_grid(problem, plan);
  const bool forward = problem.direction == Direction::kForward;
  rows_sm90a::strided::Params params{};
  params.source = forward ? pointers.x : pointers.y;
  params.packed = weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  const int64_t* from = source_stride(problem);
  std::copy_n(from, 4, params.source_stride);
  std::copy_n(result_stride(problem), 4, params.result_stride);
  params.source_h = forward ? problem.h.in : problem.h.out;
  params.source_w = forward ? problem.w.in : problem.w.out;
  params.batch = static_cast<int32_t>(problem.batch);
  params.width = problem.w.in;
  params.k_channels = weights.k_channels;
  params.n_channels = weights.n_channels;
  params.unit = storable_neighbours(problem, params.result);
  params.channel_tiles = Divisor::of(grid.channel_tiles);
  params.phase_tiles = Divisor::of(grid.phase_tiles);
  params.group_tiles = Divisor::of(grid.groups);
  params.strip_tiles = Divisor::of(grid.strip_tiles);
  params.strips = Divisor::of(grid.strips);
  params.num_tiles = static_cast<int32_t>(plan.num_tiles);
  params.tile_images = plan.tile_images;
  params.tile_quads = plan.tile_quads;
  params.strip_width = plan.strip_width;
  params.by_row = Divisor::of(plan.strip_width / 4);
  params.by_strip = Divisor::of(problem.h.in * (plan.strip_width / 4));
  params.whole_images = plan.whole_images;
  params.image_copies = plan.image_copies;
  params.box_lead = plan.box_lead;
  params.pitch = plan.pitch;
  params.box_rows = plan.box_rows;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t channels = strided_channels(element);
  params.channel_bytes = plan.pitch * element;
  const int32_t box_row_bytes = channels * params.channel_bytes;
  params.row_bytes = plan.whole_images ? params.source_w * element : box_row_bytes;
  params.image_bytes = plan.box_rows * box_row_bytes;
  params.stage_bytes = plan.stage_bytes;
  params.splits = plan.splits;
  params.num_chunks = plan.num_chunks;
  params.source_slots = plan.source_slots;
  params.weight_slots = plan.weight_slots;
  set_weight_copies(program, weights, forward, &params);
  params.packed_tile_step = weights.packed_tile_step;
  params.weights_begin = plan.weights_begin;
  params.zeros_begin = plan.zeros_begin;
  params.barriers_begin = plan.barriers_begin;
  // A tensor may begin in the middle of a vector.
  params.has_map = is_aligned(params.source, 16);
  if (params.has_map && !plan.image_copies) {
    const int64_t all_channels = int64_t{weights.k_channels} * problem.groups;
    TensorBox box{params.source,
                  {params.source_w, all_channels, params.source_h, problem.batch},
                  {from[1], from[2], from[0]},
                  {plan.pitch, channels, plan.box_rows, plan.tile_images}};
    if (plan.whole_images) {
      box.sizes[0] *= params.source_h;
      box.sizes[2] = 1;
      box.strides[1] = from[1];  // of no meaning, but a multiple of 16 bytes
    }
    params.map = make_tensor_map(problem.dtype, box);
  }
  return params;
}

}  // namespace

void launch_strided(const ConvTProblem& problem, const Plan& plan, const StridedTile& tile, const Pointers& pointers,
                    cudaStream_t stream) {
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumStridedInstances || pointers.packed == nullptr ||
      !make_tap_program(problem, &program)) {
    throw std::runtime_error("convt_ext: no strided kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const void* const kernel = rows_sm90a::strided::kKernels[tile.instance]();
  PackLaunch packing = make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks,
                                        strided_tap_bytes(tile.block_n, problem.precision == Precision::kTf32x3),
                                        pointers.w, pointers.packed);
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  rows_sm90a::strided::Params params = convolve_params(problem, tile, program, packing.params, pointers);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed, tile.splits), stream, params);
}

CONVT_KERNEL_TABLE(rows_sm90a::window, CONVT_WINDOW_INSTANCES)

namespace {

// A class of the source's rows and channels as [image][row][channel][column], columns innermost, from the 16 bytes on
// in which its rows begin.
CUtensorMap map_source(const ConvTProblem& problem, const WindowTile& plan, const void* source, int32_t row_class,
                       int32_t channel_class) {
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t* stride = source_stride(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int64_t begin = row_class * stride[2] + channel_class * stride[1], shift = begin % (16 / element);
  const TensorBox box = {
      static_cast<const char*>(source) + (begin - shift) * element,
      {gemm.source_w + shift, problem.groups * gemm.k_channels / plan.channel_classes,
       ceil_div(gemm.source_h - row_class, plan.row_classes), problem.batch},
      {plan.channel_classes * stride[1], plan.row_classes * stride[2], stride[0]},
      {plan.pitch, window_channels(element) / plan.channel_classes, window_box_rows(plan.tile_h, plan.row_classes), 1},
  };
  return make_tensor_map(problem.dtype, box);
}

rows_sm90a::window::Params convolve_params(const ConvTProblem& problem, const WindowTile& plan,
                                           const pack::Params& weights, const Pointers& pointers) {
  const WindowGrid grid = make_window_grid(problem, plan);
  const GemmShape gemm = make_gemm_shape(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const bool forward = problem.direction == Direction::kForward;
  rows_sm90a::window::Params params{};
  for (int32_t map = 0; map < plan.row_classes * plan.channel_classes; ++map) {
    params.source[map] = map_source(problem, plan, forward ? pointers.x : pointers.y, map / plan.channel_classes,
                                    map % plan.channel_classes);
  }
  params.packed = weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(result_stride(problem), 3, params.result_stride);
  params.k_channels = gemm.k_channels;
  params.n_channels = gemm.n_channels;
  params.result_h = gemm.result_h;
  params.result_w = gemm.result_w;
  params.first_h = window_shift(problem.h, problem.direction);
  params.first_w = window_shift(problem.w, problem.direction);
  while (1 << params.row_classes_log2 < plan.row_classes) ++params.row_classes_log2;
  while (1 << params.channel_classes_log2 < plan.channel_classes) ++params.channel_classes_log2;
  params.row_shift = static_cast<int32_t>(source_stride(problem)[2] % (16 / element));
  params.channel_shift = static_cast<int32_t>(source_stride(problem)[1] % (16 / element));
  params.begin_w = grid.begin_w;
  params.advance_w = plan.tile_w - plan.overlap;
  params.advance_h = plan.tile_h;
  params.overlap = plan.overlap;
  while (1 << params.tile_w_log2 < plan.tile_w) ++params.tile_w_log2;
  while (kWindowColumns << params.warps_w_log2 < plan.tile_w) ++params.warps_w_log2;
  params.channel_tiles = Divisor::of(grid.channel_tiles);
  params.group_tiles = Divisor::of(grid.groups);
  params.column_tiles = Divisor::of(grid.column_tiles);
  params.row_tiles = Divisor::of(grid.row_tiles);
  params.num_tiles = static_cast<int32_t>(plan.num_tiles);
  params.num_chunks = plan.num_chunks;
  params.slots = plan.source_slots;
  params.slot_bytes = plan.slot_bytes;
  params.channel_bytes = plan.pitch * element;
  params.row_bytes = window_channels(element) / plan.channel_classes * params.channel_bytes;
  params.box_bytes = window_box_rows(plan.tile_h, plan.row_classes) * params.row_bytes;
  params.class_bytes = plan.channel_classes * params.box_bytes;
  params.neighbour_bytes = plan.channel_classes > 1 ? params.box_bytes : params.channel_bytes;
  params.far_bytes = (element == 2 ? 8 : 4) / plan.channel_classes * params.channel_bytes;
  params.source_bytes = plan.row_classes * plan.channel_classes * params.box_bytes;
  params.packed_tile_step = weights.packed_tile_step;
  params.granule = window_granule(problem, grid.begin_w);
  while (!is_aligned(params.result, params.granule * element)) params.granule /= 2;
  params.staged_begin = plan.staged_begin;
  params.barriers_begin = plan.barriers_begin;
  return params;
}

// The weights' taps in the order of the source that they read: the other way round in the forward pass.
void order_by_source(Direction direction, TapProgram* program) {
  if (direction != Direction::kForward) return;
  TapRun& run = program->runs[0];
  run.kh += (run.num_h - 1) * run.kh_step;
  run.kw += (run.num_w - 1) * run.kw_step;
  run.kh_step = -run.kh_step;
  run.kw_step = -run.kw_step;
}

}  // namespace

void launch_window(const ConvTProblem& problem, const Plan& plan, const WindowTile& tile, const Pointers& pointers,
                   cudaStream_t stream) {
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumWindowInstances || pointers.packed == nullptr ||
      !make_tap_program(problem, &program)) {
    throw std::runtime_error("convt_ext: no window kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  order_by_source(problem.direction, &program);
  const void* const kernel = rows_sm90a::window::kKernels[tile.instance]();
  const int32_t tap_bytes = 32 * tile.block_n * window_terms(problem.precision);
  PackLaunch packing =
      make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks, tap_bytes, pointers.w, pointers.packed);
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  rows_sm90a::window::Params params = convolve_params(problem, tile, packing.params, pointers);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed), stream, params);
}

}  // namespace convt
