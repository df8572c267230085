// Launches of the patch engine's kernels: fills the parameters that are not in their layouts.
#include <algorithm>
#include <stdexcept>

#include "launch/launcher.h"
#include "launch/operands.h"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/params.h"
#include "plan/tap_program.h"

namespace convt {
namespace {

patch_sm90a::Params convolve_params(const StackedProblem& problem, const PatchTile& plan, const pack::Params& weights,
                                    const Pointers& pointers) {
  const PatchGrid grid = make_patch_grid(problem, plan);
  patch_sm90a::Params params{};
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.packed = weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(source_stride(problem), 4, params.source_stride);
  std::copy_n(result_stride(problem), 4, params.result_stride);
  params.positions = static_cast<int32_t>(problem.batch * problem.h.in * problem.w.in);
  params.by_image = FastDivmod::of(problem.h.in * problem.w.in);
  params.by_row = FastDivmod::of(problem.w.in);
  params.by_rows = FastDivmod::of(problem.h.in);
  params.batch = static_cast<int32_t>(problem.batch);
  params.k_channels = weights.k_channels;
  params.n_channels = weights.n_channels;
  params.by_planes = FastDivmod::of(problem.planes);
  params.source_batch = forward ? problem.x_batch : problem.y_batch;
  params.result_batch = forward ? problem.y_batch : problem.x_batch;
  params.by_tap_rows = FastDivmod::of(problem.plane_rows);
  params.plane_stride = problem.y_plane;
  const bool last = is_channels_last(problem.y_stride);
  params.paired = problem.paired && !last;
  params.split = problem.paired && last ? weights.n_channels / 2 : INT32_MAX;
  params.bias_channels = weights.n_channels >> problem.paired;
  params.odd_channel = params.paired ? problem.y_plane - problem.y_stride[1] : 0;
  const int64_t row = params.result_stride[2], column = params.result_stride[3];
  params.tap_row = problem.w.kernel == 1 ? params.plane_stride : row;
  params.tap_column = problem.w.kernel == 1 ? row : column;
  params.kernel_w = forward ? problem.w.kernel : 1;
  params.patch_h = problem.h.kernel;
  params.patch_w = problem.w.kernel;
  // A tensor may be aligned to less than a vector.
  params.source_vector = patch_source_vector(problem);
  while (!is_aligned(params.source, params.source_vector)) params.source_vector /= 2;
  params.unit = storable_neighbours(problem, params.result);
  const int64_t planes = params.result_batch | (forward ? problem.y_plane : 0);
  while (planes % params.unit != 0) params.unit /= 2;
  const PatchForm form = kPatchInstances[plan.instance].form;
  const bool aligned = is_aligned(params.result, 16);
  params.exchange = form == PatchForm::kGather && problem.h.in * problem.w.in % 4 == 0 && aligned;
  params.tap_tiles = FastDivmod::of(grid.tap_tiles);
  params.channel_tiles = FastDivmod::of(grid.channel_tiles);
  params.channel_blocks = grid.channel_blocks;
  params.group_tiles = FastDivmod::of(grid.groups);
  params.num_tiles = static_cast<int32_t>(plan.num_tiles);
  params.tile_positions = plan.tile_positions;
  params.step = plan.step;
  params.num_chunks = plan.num_chunks;
  params.splits = plan.splits;
  params.source_slots = plan.source_slots;
  params.weight_slots = plan.weight_slots;
  params.resident = plan.resident;
  params.packed_tile_step = weights.packed_tile_step;
  params.packed_row_step = int64_t{problem.w.kernel} * plan.num_chunks * weights.tap_bytes;
  params.staged = plan.staged && aligned;
  params.whole_rows = plan.whole_rows && aligned;
  const int32_t columns = form == PatchForm::kPairs ? 2 : 4;
  params.vectors = problem.w.kernel == columns && problem.w.out * element_bytes(problem.dtype) % 16 == 0;
  params.staged_begin = plan.staged_begin;
  params.weights_begin = plan.weights_begin;
  params.barriers_begin = plan.barriers_begin;
  return params;
}

// The weights as [box][source channel][column of the box], columns innermost.
CUtensorMap map_direct_weights(const ConvTProblem& problem, const PatchDirectLayout& layout, const void* weights) {
  const auto row = static_cast<int32_t>(128 / element_bytes(problem.dtype));
  TensorBox box = {
      weights,
      {row, problem.c_in, layout.columns / row, 1},
      {layout.columns, row, layout.columns},
      {row, row, kDirectColumns / row, 1},
  };
  box.swizzle_bytes = 128;
  return make_tensor_map(problem.dtype, box);
}

// The weights as [result channel][source channel, tap], taps innermost.
CUtensorMap map_runs_weights(const ConvTProblem& problem, const PatchRunsTile& tile, const void* weights) {
  const int64_t row = int64_t{problem.c_out} * problem.h.kernel * problem.w.kernel;
  TensorBox box = {
      weights,
      {row, problem.c_in, 1, 1},
      {problem.w_stride[0], 0, 0},
      {static_cast<int32_t>(128 / element_bytes(problem.dtype)), tile.channels, 1, 1},
  };
  box.swizzle_bytes = 128;
  box.rounded = problem.dtype == DataType::kFloat32;
  return make_tensor_map(problem.dtype, box);
}

// grad_output as [channel][image][line][column]. A box contains the lines of a tile's rows for a stage's channels.
CUtensorMap map_lines(const ConvTProblem& problem, const PatchRunsLayout& layout, const void* source) {
  const int64_t* stride = problem.y_stride;
  const int32_t rows = std::min(layout.rows, problem.h.in);
  const TensorBox box = {
      source,
      {problem.w.out, problem.h.out, problem.batch, problem.c_out},
      {stride[2], stride[0], stride[1]},
      {problem.w.out, rows * layout.kernel_h, layout.rows / rows, layout.stage_channels},
  };
  return make_tensor_map(problem.dtype, box);
}

}  // namespace

void launch_patch(const ConvTProblem& asked, const Plan& plan, const PatchTile& tile, const Pointers& pointers,
                  cudaStream_t stream) {
  const PatchForm form = instance_of(kPatchInstances, tile.instance, asked, plan).form;
  StackedProblem problem;
  TapProgram program;
  if (pointers.packed == nullptr || !stack_patches(asked, &problem) || !make_tap_program(problem, &program)) {
    throw std::runtime_error(std::string("convt_ext: no workspace for ") + plan.kernel);
  }
  const void* const kernel = patch_sm90a::kernel_of(tile.instance);
  const int32_t steps = patch_tap_steps(form);
  const int32_t block_bytes = patch_block_bytes(problem.precision == Precision::kTf32x3);
  const int32_t of_patch = form == PatchForm::kGather ? problem.h.kernel * problem.w.kernel / kPatchTaps : 1;
  PackLaunch packing = make_pack_launch(problem, program, kPatchChannels, steps, tile.num_chunks / of_patch,
                                        block_bytes / kPatchSteps * steps, pointers.w, pointers.packed);
  if (form == PatchForm::kChannels) {
    packing.params.interleaved = static_cast<int32_t>(8 / element_bytes(problem.dtype));
  }
  if (problem.paired && form == PatchForm::kChannels) {
    packing.params.split = packing.params.n_channels / 2;
    packing.params.split_offset = problem.w_stride[3];
  }
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  patch_sm90a::Params params = convolve_params(problem, tile, packing.params, pointers);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed, tile.splits), stream, params);
}

void launch_patch_direct(const ConvTProblem& problem, const Plan& plan, const PatchDirectTile& tile,
                         const Pointers& pointers, cudaStream_t stream) {
  instance_of(kPatchDirectInstances, tile.instance, problem, plan);
  patch_sm90a::DirectParams params{};
  check_layout(make_patch_direct_layout(problem, tile, &params), params, plan);
  params.weights = map_direct_weights(problem, params, pointers.w);
  params.source = pointers.x;
  params.bias = pointers.bias;
  params.steps = steps_of(pointers);
  params.result = pointers.y;
  std::copy_n(problem.x_stride, 2, params.source_stride);
  std::copy_n(problem.y_stride, 3, params.result_stride);
  params.plane_stride = problem.y_plane;
  params.quad_row = problem.h.kernel == 1 ? problem.y_plane : problem.y_stride[2];
  // Positions are read in pairs if all pairs are contiguous and aligned to their size.
  const int64_t element = element_bytes(problem.dtype);
  params.source_pairs = (problem.x_stride[0] | problem.x_stride[1] | params.by_image.value) % 2 == 0 &&
                        is_aligned(pointers.x, 2 * element);
  // A position has two or four columns of a quad in a row of the result. A store may cover several positions.
  const int32_t columns = std::min(problem.w.kernel, 4);
  int32_t unit = storable_neighbours(problem, pointers.y);
  while (problem.y_plane % unit != 0) unit /= 2;
  if (unit < columns) throw std::runtime_error("convt_ext: the result must begin on a multiple of 16 bytes");
  params.vector = columns;
  while (problem.w.kernel == columns && 2 * params.vector <= unit && params.vector * element < 16 &&
         problem.w.out % (2 * params.vector) == 0) {
    params.vector *= 2;
  }
  launch_kernel(patch_sm90a::direct_kernel_of(tile.instance), grid_of(plan), stream, params);
}

void launch_patch_runs(const ConvTProblem& problem, const Plan& plan, const PatchRunsTile& tile,
                       const Pointers& pointers, cudaStream_t stream) {
  instance_of(kPatchRunsInstances, tile.instance, problem, plan);
  patch_sm90a::RunsParams params{};
  check_layout(make_patch_runs_layout(problem, tile, &params), params, plan);
  params.weights = map_runs_weights(problem, tile, pointers.w);
  if (params.boxes) params.lines = map_lines(problem, params, pointers.y);
  params.source = pointers.y;
  params.result = pointers.x;
  const int64_t element = element_bytes(problem.dtype);
  for (int i = 0; i < 2; ++i) params.source_stride[i] = problem.y_stride[i] * element;
  std::copy_n(problem.x_stride, 2, params.result_stride);
  params.n_channels = static_cast<int32_t>(problem.c_in);
  const int64_t together = problem.x_stride[0] | problem.x_stride[1] | int64_t{problem.h.in} * problem.w.in |
                           int64_t{params.rows} * problem.w.in;
  params.quads = together % 4 == 0 && is_aligned(params.result, 4 * element);
  launch_kernel(patch_sm90a::runs_kernel_of(tile.instance), grid_of(plan, false, tile.splits), stream, params);
}

}  // namespace convt
