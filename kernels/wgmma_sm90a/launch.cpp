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

// How the loaders walk the source, whose address and strides `params` already has.
void set_loaders(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program,
                 wgmma_sm90a::Params* params) {
  const auto vector = static_cast<int32_t>(16 / element_bytes(problem.dtype));
  const bool aligned = is_aligned(params->source, 16);
  const int64_t* stride = params->source_stride;
  params->num_places = program.sub_h * program.sub_w * plan.tile_n * plan.rows * plan.pitch;
  if (plan.by_channels) {
    params->vectors = aligned && params->k_channels % vector == 0 && stride[0] % vector == 0 &&
                      stride[2] % vector == 0 && stride[3] % vector == 0;
    return;
  }
  const bool rows = rows_begin_on_vectors(problem);
  params->vectors = aligned && (rows || source_has_no_gaps(problem));
  params->gather = !rows;
  params->vector_mask = params->vectors && !rows ? static_cast<uint32_t>(vector - 1) : 0;
  const bool forward = problem.direction == Direction::kForward;
  params->source_elements =
      problem.batch * (forward ? problem.c_in : problem.c_out) * params->source_h * params->source_w;
  params->first_column = source_columns(program, plan.pitch).first;

  const LoaderWork copy = copy_work(problem, plan, program, params->vectors);
  params->copy_units = copy.units;
  params->copy_shares = copy.shares();
  params->copy_channels = copy.work / params->copy_shares;
  params->by_copy_units = Divisor::of(copy.units);
  params->by_line_units = Divisor::of(plan.raw_pitch / (params->vectors ? vector : 1));
  const LoaderWork convert = convert_work(problem, plan, program);
  params->convert_units = convert.units;
  params->unit_positions = vector == 8 && source_vector(problem) > 1 ? 2 : 1;
  params->convert_shares = convert.shares();
  params->convert_planes = convert.work / params->convert_shares;
  params->by_convert_units = Divisor::of(convert.units);
}

wgmma_sm90a::Params convolve_params(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program,
                                    const pack::Params& weights, const Pointers& pointers) {
  const GemmShape gemm = make_gemm_shape(problem);
  const WgmmaGrid grid = make_wgmma_grid(problem, program, plan);
  wgmma_sm90a::Params params{};
  static_cast<WgmmaTile&>(params) = plan;
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.packed = pack::PackedTaps::of(weights);
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(source_stride(problem), 4, params.source_stride);
  std::copy_n(result_stride(problem), 4, params.result_stride);
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
  params.channels_last = is_channels_last(params.result_stride);
  params.result_pairs = is_aligned(params.result, 8) && gemm.n_channels % 2 == 0;
  const int64_t* to = params.result_stride;
  params.column_pairs = to[3] == 1 && to[0] % 2 == 0 && to[1] % 2 == 0 && to[2] % 2 == 0 && gemm.result_w % 2 == 0 &&
                        is_aligned(params.result, 2 * element_bytes(problem.dtype)) &&
                        gemm.result_step_w == plan.split_phases && plan.tile_w * plan.split_phases % 2 == 0;
  params.channel_tiles = Divisor::of(grid.channel_tiles);
  params.w_tiles = Divisor::of(grid.w_tiles);
  params.w_splits = Divisor::of(grid.w_splits);
  params.h_phases = Divisor::of(program.phases_h);
  params.h_tiles = Divisor::of(grid.h_tiles);
  params.group_tiles = Divisor::of(weights.groups);
  params.by_rows = Divisor::of(plan.rows);
  params.by_images = Divisor::of(plan.tile_n);
  params.by_sub_w = Divisor::of(program.sub_w);
  params.by_pitch = Divisor::of(plan.pitch);
  params.by_tile_w = Divisor::of(plan.tile_w);
  params.by_tile_h = Divisor::of(plan.tile_h);
  params.block_row_step = block_row_step(plan);
  for (int32_t block = 0; block < plan.blocks; ++block) params.block_origin[block] = block_origin(plan, block);
  params.staged_positions = plan.tile_n * plan.tile_h * plan.tile_w;
  params.program = program;
  return params;
}

}  // namespace

void launch_wgmma(const ConvTProblem& problem, const Plan& plan, const WgmmaTile& tile, const Pointers& pointers,
                  cudaStream_t stream) {
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumWgmmaInstances || pointers.packed == nullptr ||
      !make_tap_program(problem, &program)) {
    throw std::runtime_error("convt_ext: no wgmma kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const PackedKernel kernels = wgmma_sm90a::kKernels[tile.instance]();
  const PackLaunch weights = make_pack_launch(problem, program, tile.block_n, tile.k_steps, tile.num_chunks,
                                              tile.tap_bytes, pointers.w, pointers.packed);
  if (weights.blocks > 0 && !pointers.is_packed) launch_pack(kernels.pack, plan, weights, stream);
  const wgmma_sm90a::Params params = convolve_params(problem, tile, program, weights.params, pointers);
  launch_kernel(kernels.convolve, grid_of(plan), stream, params);
}

}  // namespace convt
