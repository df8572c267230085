#include <algorithm>
#include <stdexcept>
#include <string>

#include "flat_sm90a/instances.h"
#include "flat_sm90a/layout.h"
#include "flat_sm90a/params.h"
#include "launch/launcher.h"
#include "launch/operands.h"
#include "plan/tap_program.h"

namespace convt {
namespace {

// Derived sizes that the parameters of both kernels use.
struct Layout {
  TapProgram program;
  FlatGeometry geometry;
  GemmShape gemm;
  FlatGrid grid;
};

flat_sm90a::PackParams pack_source_params(const ConvTProblem& problem, const FlatTile& plan, const Layout& layout,
                                          const void* source, void* packed, int64_t* blocks) {
  const TapProgram& program = layout.program;
  flat_sm90a::PackParams params{};
  params.source = source;
  params.packed = packed;
  std::copy_n(source_stride(problem), 4, params.source_stride);
  params.batch = static_cast<int32_t>(problem.batch);
  params.k_channels = layout.gemm.k_channels;
  params.source_h = layout.gemm.source_h;
  params.source_w = layout.gemm.source_w;
  params.step_h = program.source_step_h;
  params.step_w = program.source_step_w;
  params.sub_h = program.sub_h;
  params.sub_w = program.sub_w;
  for (int32_t i = 0; i < program.sub_h; ++i) params.residue_h[i] = program.window_h[i].residue;
  for (int32_t i = 0; i < program.sub_w; ++i) params.residue_w[i] = program.window_w[i].residue;
  params.by_pitch = FastDivmod::of(layout.geometry.pitch);
  params.by_image_rows = FastDivmod::of(layout.geometry.image_rows);
  params.lead = layout.geometry.lead;
  params.plane_positions = static_cast<int32_t>(plan.plane_bytes / 16);
  params.planes = plan.num_chunks * 2 * plan.k_steps;
  const int64_t vector = 16 / element_bytes(problem.dtype);
  const int64_t* stride = params.source_stride;
  params.channel_vectors = stride[1] == 1 && stride[0] % vector == 0 && stride[2] % vector == 0 &&
                           stride[3] % vector == 0 && params.k_channels % vector == 0 && is_aligned(source, 16);
  // If channels are contiguous, 8 adjacent threads read 128 contiguous bytes of a position; otherwise adjacent threads
  // read adjacent columns. Threads pack fewer planes each if there would be too few CTAs.
  params.threads_of_position_log2 = stride[1] == 1 ? 3 : 0;
  const int64_t position_blocks =
      ceil_div((int64_t{params.plane_positions} << params.threads_of_position_log2), int64_t{kFlatPackThreads});
  int64_t plane_blocks = 0;
  for (params.planes_each = 8; params.planes_each > 0; params.planes_each /= 2) {
    const int32_t of_group = ceil_div(params.planes, params.planes_each << params.threads_of_position_log2);
    plane_blocks = problem.groups * of_group;
    params.by_group_blocks = FastDivmod::of(of_group);
    params.by_plane_blocks = FastDivmod::of(static_cast<int32_t>(plane_blocks));
    if (plane_blocks * position_blocks >= kFlatEnoughPackBlocks || params.planes_each == 1) break;
  }
  *blocks = plane_blocks * position_blocks;
  return params;
}

flat_sm90a::Params convolve_params(const ConvTProblem& problem, const FlatTile& plan, const Layout& layout,
                                   const pack::Params& weights, const Pointers& pointers) {
  const TapProgram& program = layout.program;
  const GemmShape& gemm = layout.gemm;
  flat_sm90a::Params params{};
  static_cast<FlatTile&>(params) = plan;
  const bool forward = problem.direction == Direction::kForward;
  params.source = pointers.workspace;
  params.packed = pack::PackedTaps::of(weights);
  params.bias = forward ? pointers.bias : nullptr;
  params.steps = steps_of(pointers);
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(result_stride(problem), 4, params.result_stride);
  const int64_t* to = params.result_stride;
  params.batch = static_cast<int32_t>(problem.batch);
  params.n_channels = gemm.n_channels;
  params.result_h = gemm.result_h;
  params.result_w = gemm.result_w;
  params.result_step_h = gemm.result_step_h;
  params.channels_last = is_channels_last(to);
  params.unit = storable_neighbours(problem, params.result);
  params.block_tiles = FastDivmod::of(layout.grid.block_tiles);
  params.h_phases = FastDivmod::of(program.phases_h);
  params.group_tiles = FastDivmod::of(static_cast<int32_t>(problem.groups));
  params.by_pitch = FastDivmod::of(layout.geometry.pitch);
  params.by_image_rows = FastDivmod::of(layout.geometry.image_rows);
  params.sub_tiles = program.sub_h * program.sub_w;
  params.group_planes = plan.num_chunks * 2 * plan.k_steps * params.sub_tiles;
  const int32_t pitch = layout.geometry.pitch;
  for (int32_t i = 0; i < std::max(params.sub_tiles, program.phases_h); ++i) {
    const int32_t h = params.sub_tiles > 1 ? i / program.sub_w : i, w = params.sub_tiles > 1 ? i % program.sub_w : 0;
    params.window_begin[i] = layout.geometry.lead + program.window_h[h].shift * pitch + program.window_w[w].shift;
  }
  int32_t tap = 0;
  for (int32_t r = 0; r < program.num_runs; ++r) {
    const TapRun& run = program.runs[r];
    params.run_begin[r] = tap;
    for (int32_t i = 0; i < run.num_h; ++i) {
      for (int32_t j = 0; j < run.num_w; ++j) {
        params.places[tap++] =
            static_cast<int16_t>((run.row + i * run.row_step) * pitch + run.column + j * run.column_step);
      }
    }
  }
  params.run_begin[program.num_runs] = tap;
  return params;
}

}  // namespace

void launch_flat(const ConvTProblem& problem, const Plan& plan, const FlatTile& tile, const Pointers& pointers,
                 cudaStream_t stream) {
  Layout layout;
  if (tile.instance < 0 || tile.instance >= kNumFlatInstances || pointers.workspace == nullptr ||
      !make_tap_program(problem, &layout.program) || !make_flat_geometry(problem, layout.program, &layout.geometry)) {
    throw std::runtime_error("convt_ext: no flat kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  layout.gemm = make_gemm_shape(problem);
  layout.grid = make_flat_grid(problem, layout.geometry, tile);
  const void* const kernel = flat_sm90a::kernel_of(tile.instance);
  const bool forward = problem.direction == Direction::kForward;

  int64_t source_blocks = 0;
  const flat_sm90a::PackParams source =
      pack_source_params(problem, tile, layout, forward ? pointers.x : pointers.y, pointers.workspace, &source_blocks);
  PackLaunch weights = make_pack_launch(problem, layout.program, kFlatChannels, tile.k_steps, tile.num_chunks,
                                        tile.tap_bytes, pointers.w, pointers.packed);
  if (pointers.is_packed) weights.blocks = 0;
  const Grid packing{plan.kernel, weights.blocks + source_blocks, dim3(kFlatPackThreads)};
  launch_kernel(flat_sm90a::pack_operands(problem.dtype), packing, stream, source, weights.params,
                static_cast<int32_t>(weights.blocks));

  const flat_sm90a::Params params = convolve_params(problem, tile, layout, weights.params, pointers);
  launch_kernel(kernel, grid_of(plan, true), stream, params);
}

}  // namespace convt
