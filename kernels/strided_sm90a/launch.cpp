#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "plan/tap_program.h"
#include "strided_sm90a/instances.h"
#include "strided_sm90a/layout.h"
#include "strided_sm90a/params.h"

namespace convt {

CONVT_KERNEL_TABLE(strided_sm90a, CONVT_STRIDED_INSTANCES)

namespace {

// A slot has all taps of a stage and H phase as they are packed, for a 3 x 3 kernel of both H phases, or those of a row
// of the gradient's window: first of the even columns, then of the odd ones, which are packed apart.
void set_weight_copies(const TapProgram& program, const pack::Params& weights, bool forward,
                       strided_sm90a::Params* params) {
  const int32_t tap_bytes = weights.tap_bytes;
  strided_sm90a::WeightCopy* copy = params->copies;
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

strided_sm90a::Params convolve_params(const ConvTProblem& problem, const StridedTile& plan, const TapProgram& program,
                                      const pack::Params& weights, const Pointers& pointers) {
  const StridedGrid grid = make_strided_grid(problem, plan);
  const bool forward = problem.direction == Direction::kForward;
  strided_sm90a::Params params{};
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
  const void* const kernel = strided_sm90a::kKernels[tile.instance]();
  PackLaunch packing = make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks,
                                        strided_tap_bytes(tile.block_n, problem.precision == Precision::kTf32x3),
                                        pointers.w, pointers.packed);
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  strided_sm90a::Params params = convolve_params(problem, tile, program, packing.params, pointers);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed, tile.splits), stream, params);
}

}  // namespace convt
