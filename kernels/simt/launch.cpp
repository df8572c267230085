#include "reduce/launch.h"

#include <algorithm>

#include "launch/launcher.h"
#include "plan/cost.h"
#include "problem/adjoint.h"
#include "problem/fuse.h"
#include "problem/volume.h"
#include "simt/grad_weight_layout.h"
#include "simt/instances.h"
#include "simt/layout.h"

namespace convt {
namespace {

int32_t log2_of(int32_t power_of_two) {
  int32_t log2 = 0;
  while ((1 << log2) < power_of_two) ++log2;
  return log2;
}

// float32 only: other types are converted while they are copied. `further`: other distances that must be multiples of
// four elements.
bool has_input_vectors(const ConvTProblem& problem, const void* x, int64_t further) {
  const int64_t* stride = problem.x_stride;
  return problem.dtype == DataType::kFloat32 && is_aligned(x, 16) && stride[3] == 1 && stride[0] % 4 == 0 &&
         stride[1] % 4 == 0 && stride[2] % 4 == 0 && problem.w.in % 4 == 0 && further % 4 == 0;
}

// Requires that every phase uses every tap and every stage contains all taps.
bool has_weight_vectors(const ConvTProblem& problem, const SimtTile& tile, const void* w) {
  const int64_t* stride = problem.w_stride;
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  return problem.dtype == DataType::kFloat32 && is_aligned(w, 16) && problem.h.stride == 1 && problem.w.stride == 1 &&
         tile.chunk_kh >= problem.h.kernel && tile.chunk_kw >= problem.w.kernel && stride[3] == 1 &&
         problem.direction == Direction::kForward && stride[2] == problem.w.kernel && stride[1] == taps &&
         stride[0] % 4 == 0 && tile.block_co * taps % 4 == 0 && problem.c_out / problem.groups * taps % 4 == 0;
}

void* advance(void* tensor, int64_t elements, DataType dtype) {
  return static_cast<char*>(tensor) + elements * element_bytes(dtype);
}

// Launches the kernel for a two-dimensional problem with tensors from `pointers`, or for a slice of a volume.
// `volumes`: parameters of the volume, or of one image.
void launch_planes(const ConvTProblem& problem, const Plan& plan, const SimtTile& tile, const Pointers& pointers,
                   const simt::Params& volumes, int64_t num_volumes, cudaStream_t stream) {
  const Instance& instance = instance_of(kInstances, tile.instance, problem, plan);
  const bool adjoint = problem.direction == Direction::kGradInput;
  simt::Params params = volumes;
  params.x = adjoint ? pointers.y : pointers.x;
  params.w = pointers.w;
  params.bias = pointers.bias;
  params.y = adjoint ? pointers.x : pointers.y;
  const ConvTProblem computed = adjoint ? adjoint_problem(problem) : tile.fused_w > 1 ? fuse_phases(problem) : problem;
  params.problem = computed;
  params.shape = TileShape{tile.block_co, tile.tile_n, tile.tile_h, tile.tile_w, tile.phases_w};
  params.grid = make_tile_grid(computed, params.shape);
  make_shared_layout(computed, tile, &params.shared);
  params.columns =
      OutputColumns{tile.fused_w > 1 ? problem.w.stride : computed.w.stride, tile.fused_w > 1 ? problem.w.padding : 0,
                    tile.fused_w > 1 ? problem.w.out : computed.w.out, tile.fused_w > 1 ? tile.fused_w : tile.phases_w};
  params.fused_log2 = log2_of(tile.fused_w);
  params.weight_phase_stride = problem.w_stride[3];
  params.group_c_in = static_cast<int32_t>(computed.c_in / computed.groups);
  params.group_c_out = static_cast<int32_t>(computed.c_out / computed.groups);
  params.chunk_ci = tile.chunk_ci;
  params.chunk_kh = tile.chunk_kh;
  params.chunk_kw = tile.chunk_kw;
  params.stages = tile.stages;
  params.channel_groups_log2 = log2_of(tile.block_co / instance.thread_co);
  params.channels_last_input = is_channels_last(computed.x_stride);
  params.channels_last_output = is_channels_last(computed.y_stride);
  params.input_vectors = has_input_vectors(computed, params.x, params.input_volume | params.input_tap);
  params.weight_vectors = has_weight_vectors(computed, tile, pointers.w);

  const void* kernel =
      instance.thread_co == 8 ? simt::kernel_of_co8(tile.instance) : simt::kernel_of_co2(tile.instance);
  Grid grid = grid_of(plan);
  grid.blocks = num_tiles(params.grid) * num_volumes;
  launch_kernel(kernel, grid, stream, params);
}

// `planes`: images per batch element of `whole`.
void launch_grad_weight(const ConvTProblem& whole, const ConvTProblem& problem, int32_t planes, const Plan& plan,
                        const SimtGradWeightTile& tile, const Pointers& pointers, cudaStream_t stream) {
  instance_of(kGradWeightInstances, tile.instance, problem, plan);
  simt::GradWeightParams params{};
  params.planes = planes;
  params.x_volume = whole.x_stride[0];
  params.gy_volume = whole.y_stride[0];
  params.x = pointers.x;
  params.gy = pointers.y;
  params.slabs = pointers.workspace;
  params.problem = problem;
  params.plan = tile;
  params.grid = make_grad_weight_grid(problem, tile);
  make_grad_weight_layout(problem, tile, &params.layout);
  params.group_c_in = static_cast<int32_t>(problem.c_in / problem.groups);
  params.group_c_out = static_cast<int32_t>(problem.c_out / problem.groups);
  Grid grid = grid_of(plan);
  grid.blocks = num_blocks(params.grid);
  int64_t slabs = int64_t{params.grid.chunks} * tile.splits;
  if (grid.blocks > 0) {
    launch_kernel(simt::grad_weight_kernel_of(tile.instance), grid, stream, params);
  } else {  // a tap along the depth that no pair of planes has
    fill_zero(pointers.workspace, slab_bytes(problem, 1), plan.kernel, stream);
    slabs = 1;
  }

  const int64_t* w_stride = problem.w_stride;
  const int64_t size[4] = {problem.c_in, problem.h.kernel, problem.w.kernel, params.group_c_out};
  const int64_t stride[4] = {w_stride[0], w_stride[2], w_stride[3], w_stride[1]};
  launch_add_slabs(problem.dtype, pointers.workspace, slabs, size, stride, pointers.w, stream);
}

}  // namespace

void launch_simt(const ConvTProblem& problem, const Plan& plan, const SimtTile& tile, const Pointers& pointers,
                 cudaStream_t stream) {
  simt::Params params{};
  params.weight_group_stride = problem.c_in / problem.groups * problem.w_stride[0];
  params.depth_taps = FastDivmod::of(1);
  if (!is_volume(problem)) return launch_planes(problem, plan, tile, pointers, params, 1, stream);
  const bool forward = problem.direction == Direction::kForward;
  const bool tap_sums = kInstances[tile.instance].precision == Precision::kAten;
  params.input_volume = forward ? problem.x_stride[0] : problem.y_stride[0];
  params.output_volume = forward ? problem.y_stride[0] : problem.x_stride[0];
  for (const PlaneSlice& slice : plane_slices(problem)) {
    const int32_t x = forward ? slice.source_plane : slice.first_plane;
    const int32_t y = forward ? slice.first_plane : slice.source_plane;
    params.depth_taps = FastDivmod::of(std::max(slice.num_taps, 1));
    params.input_tap = slice.source_tap_step * (forward ? problem.x_plane : problem.y_plane);
    params.weight_tap = slice.tap_step * problem.w_plane;
    Pointers at = pointers;
    at.x = advance(pointers.x, x * problem.x_plane, problem.dtype);
    at.w = advance(pointers.w, slice.first_tap * problem.w_plane, problem.dtype);
    at.y = advance(pointers.y, y * problem.y_plane, problem.dtype);
    const ConvTProblem flat = slice_problem(problem, slice, !tap_sums || slice.num_taps == 0);
    launch_planes(flat, plan, tile, at, params, problem.batch, stream);
  }
}

void launch_simt_grad_weight(const ConvTProblem& problem, const Plan& plan, const SimtGradWeightTile& tile,
                             const Pointers& pointers, cudaStream_t stream) {
  if (!is_volume(problem)) return launch_grad_weight(problem, problem, 1, plan, tile, pointers, stream);
  for (int32_t tap = 0; tap < problem.d.kernel; ++tap) {
    const PlanePairs pairs = plane_pairs(problem.d, tap);
    Pointers at = pointers;
    at.x = advance(pointers.x, pairs.x * problem.x_plane, problem.dtype);
    at.w = advance(pointers.w, tap * problem.w_plane, problem.dtype);
    at.y = advance(pointers.y, pairs.y * problem.y_plane, problem.dtype);
    launch_grad_weight(problem, pairs_problem(problem, pairs), pairs.count, plan, tile, at, stream);
  }
}

}  // namespace convt
