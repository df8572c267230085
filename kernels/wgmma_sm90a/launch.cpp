#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/layout.h"
#include "wgmma_sm90a/params.h"

namespace convt {

CONVT_KERNEL_TABLE(wgmma_sm90a, CONVT_WGMMA_INSTANCES, PackedKernel)

namespace {

// What both kernels are launched with.
struct WgmmaLaunch {
  PackLaunch pack;
  wgmma_sm90a::Params convolve;
};

// How the loaders walk the source, whose address and strides `params` already has.
void set_loaders(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program,
                 wgmma_sm90a::Params* params) {
  using wgmma_sm90a::Walk;
  const auto vector = static_cast<int32_t>(16 / element_bytes(problem.dtype));
  const bool aligned = is_aligned(params->source, 16);
  const int64_t* stride = params->source_stride;
  params->num_places = program.sub_h * program.sub_w * plan.tile_n * plan.rows * plan.pitch;
  if (plan.by_channels) {
    const bool vectors = aligned && params->k_channels % vector == 0 && stride[0] % vector == 0 &&
                         stride[2] % vector == 0 && stride[3] % vector == 0;
    params->walk = vectors ? Walk::kChannels : Walk::kChannelElements;
    return;
  }
  const bool rows = rows_begin_on_vectors(problem);
  const bool vectors = aligned && (rows || source_has_no_gaps(problem));
  params->walk = !vectors ? Walk::kElements : rows ? Walk::kRows : Walk::kVectors;
  params->gather = !rows;
  params->vector_mask = params->walk == Walk::kVectors ? static_cast<uint32_t>(vector - 1) : 0;
  const bool forward = problem.direction == Direction::kForward;
  params->source_elements =
      problem.batch * (forward ? problem.c_in : problem.c_out) * params->source_h * params->source_w;
  params->raw_lines = plan.raw_lines;
  params->raw_pitch = plan.raw_pitch;
  params->raw_slots = plan.raw_slots;
  params->raw_bytes = plan.raw_bytes;
  params->raw_channel_bytes = plan.raw_channel_bytes;
  params->first_column = source_columns(program, plan.pitch).first;

  const LoaderWork copy = copy_work(problem, plan, program, vectors);
  params->copy_units = copy.units;
  params->copy_parts = copy.parts();
  params->copy_channels = copy.work / params->copy_parts;
  params->by_copy_units = Divisor::of(copy.units);
  params->by_line_units = Divisor::of(plan.raw_pitch / (vectors ? vector : 1));
  const LoaderWork convert = convert_work(problem, plan, program);
  params->convert_units = convert.units;
  params->unit_positions = vector == 8 && source_vector(problem) > 1 ? 2 : 1;
  params->convert_parts = convert.parts();
  params->convert_planes = convert.work / params->convert_parts;
  params->by_convert_units = Divisor::of(convert.units);
}

// `source` and `result` by direction; `packed` has plan.packed_bytes.
WgmmaLaunch make_wgmma_launch(const ConvTProblem& problem, const WgmmaTile& plan, const void* source, const void* w,
                              const void* bias, void* result, void* packed) {
  WgmmaLaunch launch{};
  const bool forward = problem.direction == Direction::kForward;
  const GemmShape gemm = make_gemm_shape(problem);
  TapProgram program;
  if (!make_tap_program(problem, &program)) {
    throw std::runtime_error("convt_ext: the plan's engine has no tap program for this problem");
  }
  const WgmmaGrid grid = make_wgmma_grid(problem, program, plan);
  launch.pack =
      make_pack_launch(problem, program, plan.block_n, plan.k_steps, plan.num_chunks, plan.tap_bytes, w, packed);
  const pack::Params& pack = launch.pack.params;

  wgmma_sm90a::Params& params = launch.convolve;
  params.source = source;
  params.packed = packed;
  params.bias = bias;
  params.result = result;
  std::copy_n(forward ? problem.x_stride : problem.y_stride, 4, params.source_stride);
  std::copy_n(forward ? problem.y_stride : problem.x_stride, 4, params.result_stride);
  params.batch = static_cast<int32_t>(problem.batch);
  params.k_channels = gemm.k_channels;
  params.n_channels = gemm.n_channels;
  params.source_h = gemm.source_h;
  params.source_w = gemm.source_w;
  params.result_h = gemm.result_h;
  params.result_w = gemm.result_w;
  params.result_step_h = gemm.result_step_h;
  params.result_step_w = gemm.result_step_w;
  set_loaders(problem, plan, program, &params);
  params.result_pairs = is_aligned(result, 8) && gemm.n_channels % 2 == 0;
  const int64_t* to = params.result_stride;
  params.column_pairs = to[3] == 1 && to[0] % 2 == 0 && to[1] % 2 == 0 && to[2] % 2 == 0 && gemm.result_w % 2 == 0 &&
                        is_aligned(result, 2 * element_bytes(problem.dtype)) &&
                        gemm.result_step_w == plan.split_phases && plan.tile_w * plan.split_phases % 2 == 0;
  params.channel_tiles = Divisor::of(grid.channel_tiles);
  params.w_tiles = Divisor::of(grid.w_tiles);
  params.w_splits = Divisor::of(grid.w_splits);
  params.h_phases = Divisor::of(program.phases_h);
  params.h_tiles = Divisor::of(grid.h_tiles);
  params.group_tiles = Divisor::of(pack.groups);
  params.num_tiles = static_cast<int32_t>(plan.num_tiles);
  params.tile_n = plan.tile_n;
  params.tile_h = plan.tile_h;
  params.tile_w = plan.tile_w;
  params.split_phases = plan.split_phases;
  params.rows = plan.rows;
  params.pitch = plan.pitch;
  params.by_rows = Divisor::of(plan.rows);
  params.by_images = Divisor::of(plan.tile_n);
  params.by_sub_w = Divisor::of(program.sub_w);
  params.by_pitch = Divisor::of(plan.pitch);
  params.by_tile_w = Divisor::of(plan.tile_w);
  params.by_tile_h = Divisor::of(plan.tile_h);
  params.plane_positions = plan.plane_positions;
  params.k_steps = plan.k_steps;
  params.num_chunks = plan.num_chunks;
  params.source_slots = plan.source_slots;
  params.weight_slots = plan.weight_slots;
  params.slot_taps = plan.slot_taps;
  params.tap_bytes = plan.tap_bytes;
  params.packed_tile_step = pack.packed_tile_step;
  for (int32_t phase = 0; phase < program.phases_h; ++phase) {
    params.packed_phase_begin[phase] = pack.packed_phase_begin[phase];
    params.packed_chunk_step[phase] = program.num_taps[phase] * plan.tap_bytes;
  }
  params.raw_begin = plan.raw_begin;
  params.weights_begin = plan.weights_begin;
  params.staged_begin = plan.staged_begin;
  params.lists_begin = plan.lists_begin;
  params.barriers_begin = plan.barriers_begin;
  params.num_blocks = plan.blocks;
  params.block_row_step = block_row_step(plan);
  for (int32_t block = 0; block < plan.blocks; ++block) params.block_origin[block] = block_origin(plan, block);
  params.staged_positions = plan.tile_n * plan.tile_h * plan.tile_w;
  params.staged_stride = plan.staged_stride;
  params.program = program;
  return launch;
}

}  // namespace

void launch_wgmma(const ConvTProblem& problem, const Plan& plan, const WgmmaTile& tile, const Pointers& pointers,
                  cudaStream_t stream) {
  if (tile.instance < 0 || tile.instance >= kNumWgmmaInstances || pointers.packed == nullptr) {
    throw std::runtime_error("convt_ext: no Hopper kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const bool forward = problem.direction == Direction::kForward;
  WgmmaLaunch launch =
      make_wgmma_launch(problem, tile, forward ? pointers.x : pointers.y, pointers.w, forward ? pointers.bias : nullptr,
                        forward ? pointers.y : pointers.x, pointers.packed);
  const PackedKernel kernels = wgmma_sm90a::kKernels[tile.instance]();

  if (launch.pack.blocks > 0 && !pointers.is_packed) launch_pack(kernels.pack, plan, launch.pack, stream);
  launch_kernel(kernels.convolve, grid_of(plan), stream, launch.convolve);
}

}  // namespace convt
