#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/layout.h"
#include "patch_sm90a/params.h"
#include "plan/kernel_table.h"
#include "plan/tap_program.h"

namespace convt {

CONVT_KERNEL_TABLE(patch_sm90a, CONVT_PATCH_INSTANCES, PackedKernel)

namespace {

patch_sm90a::Params convolve_params(const ConvTProblem& problem, const PatchTile& plan, const pack::Params& weights,
                                    const Pointers& pointers) {
  const PatchGrid grid = make_patch_grid(problem, plan);
  patch_sm90a::Params params{};
  const bool forward = problem.direction == Direction::kForward;
  params.source = forward ? pointers.x : pointers.y;
  params.packed = weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(source_stride(problem), 4, params.source_stride);
  std::copy_n(result_stride(problem), 4, params.result_stride);
  params.positions = static_cast<int32_t>(problem.batch * problem.h.in * problem.w.in);
  params.by_image = Divisor::of(problem.h.in * problem.w.in);
  params.by_row = Divisor::of(problem.w.in);
  params.by_rows = Divisor::of(problem.h.in);
  params.batch = static_cast<int32_t>(problem.batch);
  params.k_channels = weights.k_channels;
  params.n_channels = weights.n_channels;
  params.kernel_h = forward ? problem.h.kernel : 1;
  params.kernel_w = forward ? problem.w.kernel : 1;
  params.patch_h = problem.h.kernel;
  params.patch_w = problem.w.kernel;
  // A tensor may begin in the middle of a vector.
  params.source_vector = patch_source_vector(problem);
  while (!is_aligned(params.source, params.source_vector)) params.source_vector /= 2;
  params.vector_mask = params.source_vector / static_cast<int32_t>(element_bytes(problem.dtype)) - 1;
  params.unit = storable_neighbours(problem, params.result);
  const PatchForm form = kPatchInstances[plan.instance].form;
  const bool aligned = is_aligned(params.result, 16);
  params.exchange = gathers_patches(form) && problem.h.in * problem.w.in % 4 == 0 && aligned;
  params.tap_tiles = Divisor::of(grid.tap_tiles);
  params.channel_tiles = Divisor::of(grid.channel_tiles);
  params.channel_blocks = grid.channel_blocks;
  params.group_tiles = Divisor::of(grid.groups);
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

}  // namespace

void launch_patch(const ConvTProblem& problem, const Plan& plan, const PatchTile& tile, const Pointers& pointers,
                  cudaStream_t stream) {
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumPatchInstances || pointers.packed == nullptr ||
      !make_tap_program(problem, &program, false)) {
    throw std::runtime_error("convt_ext: no patch kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  const PackedKernel kernels = patch_sm90a::kKernels[tile.instance]();
  const PatchForm form = kPatchInstances[tile.instance].form;
  const int32_t steps = patch_tap_steps(form);
  const int32_t block_bytes = patch_block_bytes(problem.precision == Precision::kTf32x3);
  const int32_t of_patch = gathers_patches(form) ? problem.h.kernel * problem.w.kernel / kPatchTaps : 1;
  PackLaunch packing = make_pack_launch(problem, program, kPatchChannels, steps, tile.num_chunks / of_patch,
                                        block_bytes / kPatchSteps * steps, pointers.w, pointers.packed);
  if (form == PatchForm::kChannels) {
    packing.params.interleaved = static_cast<int32_t>(8 / element_bytes(problem.dtype));
  }
  if (!pointers.is_packed) launch_pack(kernels.pack, plan, packing, stream);
  patch_sm90a::Params params = convolve_params(problem, tile, packing.params, pointers);
  launch_kernel(kernels.convolve, grid_of(plan, !pointers.is_packed, tile.splits), stream, params);
}

}  // namespace convt
