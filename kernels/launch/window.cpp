#include "plan/window.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "launch/engines.h"
#include "launch/operands.h"
#include "launch/tensor_map.h"
#include "plan/wgmma.h"
#include "plan/window_instances.h"
#include "window_sm90a/instances.h"
#include "window_sm90a/params.h"

namespace convt {
namespace {

using KernelSymbols = window_sm90a::Kernels (*)();

constexpr KernelSymbols kKernels[] = {
#define CONVT_ROW(symbol, ...) &window_sm90a::symbol,
    CONVT_WINDOW_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// The source as [image][row][channel][column], columns innermost.
CUtensorMap map_source(const ConvTProblem& problem, const WindowPlan& plan, const void* source) {
  const GemmShape gemm = make_gemm_shape(problem);
  const int64_t* stride = source_stride(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const TensorBox box = {
      source,
      {gemm.source_w, problem.groups * gemm.k_channels, gemm.source_h, problem.batch},
      {stride[1], stride[2], stride[0]},
      {window_pitch(plan.tile_w), window_channels(element), plan.tile_h + kWindowKernelH - 1, 1},
  };
  return make_tensor_map(problem.dtype, box);
}

window_sm90a::Params convolve_params(const ConvTProblem& problem, const WindowPlan& plan, const pack::Params& weights,
                                     const Pointers& pointers) {
  const WindowGrid grid = make_window_grid(problem, plan);
  const GemmShape gemm = make_gemm_shape(problem);
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const bool forward = problem.direction == Direction::kForward;
  window_sm90a::Params params{};
  params.source = map_source(problem, plan, forward ? pointers.x : pointers.y);
  params.packed = weights.packed;
  params.bias = forward ? pointers.bias : nullptr;
  params.result = forward ? pointers.y : pointers.x;
  std::copy_n(result_stride(problem), 3, params.result_stride);
  params.k_channels = gemm.k_channels;
  params.n_channels = gemm.n_channels;
  params.result_h = gemm.result_h;
  params.result_w = gemm.result_w;
  params.first_h = window_shift(problem.h, problem.direction);
  params.first_w = window_shift(problem.w, problem.direction);
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
  params.source_bytes = window_source_bytes(plan.tile_h, plan.tile_w);
  params.packed_tile_step = weights.packed_tile_step;
  params.granule = window_granule(problem, grid.begin_w);
  while (reinterpret_cast<uintptr_t>(params.result) % (params.granule * element) != 0) params.granule /= 2;
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

void launch_window(const ConvTProblem& problem, const Plan& plan, const Pointers& pointers, cudaStream_t stream) {
  const WindowPlan& tile = plan.window;
  TapProgram program;
  if (tile.instance < 0 || tile.instance >= kNumWindowInstances || pointers.packed == nullptr ||
      !make_tap_program(problem, &program, false)) {
    throw std::runtime_error("convt_ext: no window kernel number " + std::to_string(tile.instance) +
                             ", or no workspace for it");
  }
  order_by_source(problem.direction, &program);
  const window_sm90a::Kernels kernels = kKernels[tile.instance]();
  const int32_t tap_bytes = 32 * tile.block_n * window_parts(problem.precision);
  PackLaunch packing = make_pack_launch(problem, program, tile.block_n, 1, tile.num_chunks, tap_bytes, pointers.w,
                                        pointers.packed);
  if (!pointers.is_packed) launch_pack(kernels.pack, plan, packing, stream);
  window_sm90a::Params params = convolve_params(problem, tile, packing.params, pointers);
  void* arguments[] = {&params};
  launch_kernel(kernels.convolve, plan, arguments, stream, true);
}

}  // namespace convt
