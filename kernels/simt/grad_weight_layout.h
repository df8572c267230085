// Work of a CTA in the gradient of the weight, and its shared-memory layout. Shared by the planner (does it fit?), its
// tests and the kernel (simt/grad_weight.cuh).
//
// Pixels are the positions of the input. A CTA owns block_ci x block_co channels x block_kh tap rows x block_runs runs
// of thread_kw taps, and one chunk of the pixels: tiles_per_chunk tiles of tile_h x tile_w. `splits` threads share each
// weight and process the pixels of a tile in rotation. A slab is the weight-shaped array of partial sums of one
// (chunk, split); reduce/ adds the slabs. Chunks, tiles and splits depend only on the problem, so the result has the
// same bits on every GPU.
#pragma once

#include <cstdint>

#include "plan/shared_memory.h"
#include "plan/tile.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "simt/instances.h"
#include "simt/layout.h"

namespace convt {

// Tile of the gradient of the weight.
struct SimtGradWeightTile {
  int32_t instance;  // index into kGradWeightInstances
  int32_t block_ci;  // channels per CTA, multiples of the instance's
  int32_t block_co;
  int32_t block_kh;  // tap rows per CTA
  int32_t block_runs;  // runs of thread_kw taps per CTA
  int32_t splits;  // threads that share the pixels of a weight, a power of two
  int32_t tile_h;  // pixels per stage
  int32_t tile_w_log2;
  int64_t tiles_per_chunk;

  CONVT_TILE_FIELDS(block_ci, block_co, block_kh, block_runs, splits, tile_h, tile_w_log2, tiles_per_chunk)
};

inline constexpr int32_t kMaxGradWeightThreads = 384;
inline constexpr int32_t kGradWeightStages = 2;

// Counts along each digit of the block index, fastest first; the last is the chunk.
struct GradWeightGrid {
  int32_t run_tiles;
  int32_t kh_tiles;
  int32_t co_tiles;
  int32_t ci_tiles;
  int32_t groups;
  int32_t chunks;
  // Not digits of the block index:
  int32_t h_tiles;
  int32_t w_tiles;
  int64_t pixel_tiles;  // batch * h_tiles * w_tiles
};

struct GradWeightTile {
  int32_t run_begin;
  int32_t kh_begin;
  int32_t co_begin;  // within the group
  int32_t ci_begin;  // within the group
  int32_t group;
  int32_t chunk;
};

// Layout of a stage: [pixel][ci_pitch] of the input, then [row][column][co_pitch] of grad_output.
struct GradWeightLayout {
  Window rows;  // rows of grad_output that the block's taps read at the tile's positions
  Window columns;
  int32_t ci_pitch;
  int32_t co_pitch;
  int32_t output_elems;  // offset of grad_output in a stage, in elements
  int32_t stage_elems;
  int32_t places_bytes_begin;  // after the stages: one Place per position of grad_output's window
};

// Pixel stride of 4 (mod 8) elements. The 8 columns x 4 channels that a warp writes at once hit different banks, as do
// the pixels that it reads at once.
CONVT_HOST_DEVICE inline int32_t channel_pitch(int32_t channels) {
  return channels <= 4 ? 4 : (channels + 3) / 8 * 8 + 4;
}

inline GradWeightGrid make_grad_weight_grid(const ConvTProblem& problem, const SimtGradWeightTile& plan) {
  const int32_t runs = ceil_div(problem.w.kernel, kGradWeightInstances[plan.instance].thread_kw);
  GradWeightGrid grid;
  grid.run_tiles = ceil_div(runs, plan.block_runs);
  grid.kh_tiles = ceil_div(problem.h.kernel, plan.block_kh);
  grid.co_tiles = static_cast<int32_t>(ceil_div(problem.c_out / problem.groups, int64_t{plan.block_co}));
  grid.ci_tiles = static_cast<int32_t>(ceil_div(problem.c_in / problem.groups, int64_t{plan.block_ci}));
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.h_tiles = ceil_div(problem.h.in, plan.tile_h);
  grid.w_tiles = ceil_div(problem.w.in, 1 << plan.tile_w_log2);
  grid.pixel_tiles = problem.batch * grid.h_tiles * grid.w_tiles;
  grid.chunks = static_cast<int32_t>(ceil_div(grid.pixel_tiles, plan.tiles_per_chunk));
  return grid;
}

inline int64_t num_blocks(const GradWeightGrid& grid) {
  return int64_t{grid.run_tiles} * grid.kh_tiles * grid.co_tiles * grid.ci_tiles * grid.groups * grid.chunks;
}

CONVT_HOST_DEVICE inline GradWeightTile grad_weight_tile(const GradWeightGrid& grid, const SimtGradWeightTile& plan,
                                                         uint32_t block) {
  auto next_digit = [&block](int32_t count) {
    const uint32_t quotient = block / static_cast<uint32_t>(count);
    const int32_t digit = static_cast<int32_t>(block - quotient * count);
    block = quotient;
    return digit;
  };
  GradWeightTile tile;
  tile.run_begin = next_digit(grid.run_tiles) * plan.block_runs;
  tile.kh_begin = next_digit(grid.kh_tiles) * plan.block_kh;
  tile.co_begin = next_digit(grid.co_tiles) * plan.block_co;
  tile.ci_begin = next_digit(grid.ci_tiles) * plan.block_ci;
  tile.group = next_digit(grid.groups);
  tile.chunk = static_cast<int32_t>(block);
  return tile;
}

// Neighbouring columns share a sector, so unread columns cost less than separate copies of columns that several taps
// read.
inline Window output_columns(int32_t num_taps, int32_t shift_step, int32_t position_step, int32_t tile_w) {
  const Window overlapping = overlapping_window(num_taps, shift_step, position_step, tile_w);
  return 4 * int64_t{overlapping.extent} <= 7 * int64_t{num_taps} * tile_w ? overlapping
                                                                           : copied_window(num_taps, tile_w);
}

// Returns the bytes of shared memory, at most INT32_MAX: the planner also probes tiles that are far too large.
inline int32_t make_grad_weight_layout(const ConvTProblem& problem, const SimtGradWeightTile& plan,
                                       GradWeightLayout* layout) {
  const GradWeightInstance& instance = kGradWeightInstances[plan.instance];
  const int32_t tile_w = 1 << plan.tile_w_log2, taps_w = plan.block_runs * instance.thread_kw;
  const Axis &h = problem.h, &w = problem.w;
  layout->rows = row_window(plan.block_kh, h.dilation, h.stride, plan.tile_h);
  layout->columns = output_columns(taps_w, w.dilation, w.stride, tile_w);
  layout->ci_pitch = channel_pitch(plan.block_ci);
  layout->co_pitch = channel_pitch(plan.block_co);
  const int64_t input = int64_t{plan.tile_h} * tile_w * layout->ci_pitch;
  const int64_t output = int64_t{layout->rows.extent} * layout->columns.extent * layout->co_pitch;
  layout->output_elems = static_cast<int32_t>(input);
  layout->stage_elems = static_cast<int32_t>(input + output);
  const int64_t stages = kGradWeightStages * (input + output) * (instance.dtype == DataType::kFloat64 ? 8 : 4);
  constexpr int64_t kPlaceBytes = 8;
  SharedMemory smem;
  smem.take(stages);
  layout->places_bytes_begin = smem.take(kPlaceBytes * layout->rows.extent * layout->columns.extent);
  return smem.bytes();
}

}  // namespace convt

namespace convt::simt {

// Kernel parameters. simt/launch.cpp fills them; they are constant for the whole grid.
struct GradWeightParams {
  const void* x;  // [batch, c_in, h_in, w_in], any strides
  const void* gy;  // [batch, c_out, h_out, w_out], any strides
  void* slabs;  // [chunks * splits][c_in, k_h, k_w, c_out / groups], contiguous, in the accumulator's type
  ConvTProblem problem;
  SimtGradWeightTile plan;
  GradWeightGrid grid;
  GradWeightLayout layout;
  int32_t group_c_in;  // c_in / groups
  int32_t group_c_out;  // c_out / groups
  // Three-dimensional problems: images per batch element, and elements between batch elements. Otherwise one image.
  int32_t planes;
  int64_t x_volume, gy_volume;
};

}  // namespace convt::simt
