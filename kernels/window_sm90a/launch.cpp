#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/families.h"
#include "launch/operands.h"
#include "plan/kernel_table.h"
#include "plan/tap_program.h"
#include "window_sm90a/instances.h"
#include "window_sm90a/layout.h"
#include "window_sm90a/params.h"

namespace convt {

CONVT_KERNEL_TABLE(window_sm90a, CONVT_WINDOW_INSTANCES)

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

window_sm90a::Params convolve_params(const ConvTProblem& problem, const WindowTile& plan, const pack::Params& weights,
                                     const Pointers& pointers) {
  const WindowGrid grid = make_window_grid(problem, plan);
  const GemmShape gemm = make_gemm_shape(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const bool forward = problem.direction == Direction::kForward;
  window_sm90a::Params params{};
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
  const void* const kernel = window_sm90a::kKernels[tile.instance]();
  const int32_t tap_bytes = 32 * tile.block_n * window_terms(problem.precision);
  PackLaunch packing =
      make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks, tap_bytes, pointers.w, pointers.packed);
  if (!pointers.is_packed) launch_pack(problem, plan, packing, stream);
  window_sm90a::Params params = convolve_params(problem, tile, packing.params, pointers);
  launch_kernel(kernel, grid_of(plan, !pointers.is_packed), stream, params);
}

}  // namespace convt
