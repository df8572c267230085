// Output tile of a CTA of the exact-order engine, and its shared-memory layout. The planner (does it fit?), the kernel
// and the tests share this definition. CPU tests use it to prove that the kernel writes every output exactly once.
//
//   [stage 0: input | weight] [stage 1: input | weight] ... [staged outputs] [copy list]
//
// input, per input channel:  [tile_n][rows][pitch]; the plane size is 4 (mod 32) elements, so that lanes
//                            on neighbouring channels hit different banks
// weight, per input channel: [channel group][taps rounded up to odd][thread_co]; an odd tap count
//                            keeps the channel groups of a warp on different banks
// staged outputs: NCHW          [block_co][tile_n][tile_h][tile_w * phases_w], channel stride 1 (mod 4)
//                 channels_last [tile_n][tile_h][tile_w * phases_w][block_co + 1]
// copy list: one int64 per input position, one int64 and one int32 per weight of an input channel
//
// With one W phase the staged outputs reuse the memory of the stages, which are idle by then.
#pragma once

#include <cstdint>

#include "plan/shared_memory.h"
#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "simt/instances.h"
#include "tiling/window.h"

namespace convt {

// Tile of the exact-order engine.
struct SimtTile {
  int32_t instance;  // index into kInstances
  int32_t block_co;  // output channels per tile: a power of two times the instance's thread_co
  int32_t tile_n;  // images per tile; more than 1 only if tile_h covers every position
  int32_t tile_h;  // positions of one H phase
  int32_t tile_w;  // positions of each W phase, a multiple of 4
  int32_t fused_w;  // W phases computed as output channels (problem/fuse.h), or 1; if > 1, the fields describe y'
  int32_t phases_w;  // W phases per tile: all, unless the staged outputs would not fit
  int32_t chunk_ci;  // input channels per stage
  int32_t chunk_kh;  // taps of the phase per stage, along H and W
  int32_t chunk_kw;
  int32_t stages;  // pipeline stages

  CONVT_TILE_FIELDS(block_co, tile_n, tile_h, tile_w, fused_w, phases_w, chunk_ci, chunk_kh, chunk_kw, stages)
};

// Tile extents that determine the grid.
struct TileShape {
  int32_t block_co, tile_n, tile_h, tile_w, phases_w;
};

// Counts along each digit of the block index, fastest first.
struct TileGrid {
  int32_t co_tiles;  // per group
  int32_t w_tiles;  // tiles of tile_w positions
  int32_t w_splits;  // sets of phases_w consecutive W phases; the last may be smaller
  int32_t h_phases;  // min(stride_h, h_out)
  int32_t h_tiles;  // tiles of tile_h positions
  int32_t groups;
  int32_t n_tiles;  // per volume
  // Not digits of the block index:
  int32_t w_phases;  // min(stride_w, w_out)
  int32_t w_origin;  // positions by which the first tile starts before position 0
};

struct Tile {
  int32_t volume;  // batch element of a three-dimensional problem; its planes are the images
  int32_t n_begin;  // images n_begin .. n_begin + tile_n - 1
  int32_t group;
  int32_t co_begin;  // within the group
  int32_t phase_h;
  int32_t p_h_begin;  // positions of phase_h
  int32_t phase_w_begin;  // W phases phase_w_begin .. phase_w_begin + num_phases_w - 1
  int32_t num_phases_w;
  int32_t p_w_begin;  // positions of every W phase; negative in the first tile if w_origin > 0
};

// Offset that aligns the input columns of a tile to a multiple of 4, so that whole quads can be copied. Applies to one
// W phase with consecutive taps. Tiles then start up to 3 positions before the first output. make_tile_grid() drops the
// offset if it would add a tile.
inline int32_t w_origin(const Axis& w) {
  if (w.stride != 1 || (w.dilation != 1 && w.dilation != -1) || w.position_step != 1) return 0;
  const int32_t first_column = w.dilation == 1 ? w.padding - (w.kernel - 1) : w.padding;  // read by position 0
  return ((first_column % 4) + 4) % 4;
}

inline TileGrid make_tile_grid(const ConvTProblem& problem, const TileShape& shape) {
  TileGrid grid;
  grid.co_tiles = static_cast<int32_t>(ceil_div(problem.c_out / problem.groups, int64_t{shape.block_co}));
  const int32_t positions_w = num_positions(problem.w, 0);
  grid.w_tiles = ceil_div(positions_w, shape.tile_w);
  const bool same_tiles = ceil_div(positions_w + w_origin(problem.w), shape.tile_w) == grid.w_tiles;
  grid.w_origin = same_tiles ? w_origin(problem.w) : 0;
  grid.w_splits = ceil_div(num_phases(problem.w), shape.phases_w);
  grid.h_phases = num_phases(problem.h);
  grid.w_phases = num_phases(problem.w);
  grid.h_tiles = ceil_div(num_positions(problem.h, 0), shape.tile_h);
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.n_tiles = static_cast<int32_t>(ceil_div(problem.batch, int64_t{shape.tile_n}));
  return grid;
}

inline int64_t num_tiles(const TileGrid& grid) {
  return int64_t{grid.n_tiles} * grid.groups * grid.h_tiles * grid.h_phases * grid.w_splits * grid.w_tiles *
         grid.co_tiles;
}

// Block order: channel tiles first, then the row, then the phases and positions of the next rows, then groups, then
// images, then volumes. Consecutive blocks thus share their input in L2.
CONVT_HOST_DEVICE inline Tile tile_of_block(const TileGrid& grid, const TileShape& shape, uint32_t block) {
  Tile tile;
  auto next_digit = [&block](int32_t count) {
    const uint32_t quotient = block / static_cast<uint32_t>(count);
    const int32_t digit = static_cast<int32_t>(block - quotient * count);
    block = quotient;
    return digit;
  };
  tile.co_begin = next_digit(grid.co_tiles) * shape.block_co;
  tile.p_w_begin = next_digit(grid.w_tiles) * shape.tile_w - grid.w_origin;
  const int32_t w_split = next_digit(grid.w_splits);
  tile.phase_h = next_digit(grid.h_phases);
  tile.p_h_begin = next_digit(grid.h_tiles) * shape.tile_h;
  tile.group = next_digit(grid.groups);
  tile.n_begin = next_digit(grid.n_tiles) * shape.tile_n;
  tile.volume = static_cast<int32_t>(block);
  tile.phase_w_begin = w_split * shape.phases_w;
  const int32_t phases_left = grid.w_phases - tile.phase_w_begin;
  tile.num_phases_w = phases_left < shape.phases_w ? phases_left : shape.phases_w;
  return tile;
}

inline constexpr int32_t kMaxPhasesW = 32;  // maximum W phases per tile: size of the kernel's phase table
inline constexpr int32_t kMaxStages = 3;

CONVT_HOST_DEVICE inline int32_t input_pitch(int32_t columns) { return (columns + 3) / 4 * 4; }

// Smallest value >= elements that is congruent to 4 (mod 32).
CONVT_HOST_DEVICE inline int32_t input_plane(int32_t elements) { return (elements + 27) / 32 * 32 + 4; }

CONVT_HOST_DEVICE inline int32_t weight_plane(int32_t block_co, int32_t num_taps) { return block_co * (num_taps | 1); }

// Mapping of a tile's positions to the output's W axis: position p and a phase of the tile map to column
// p * stride + phase - offset, if it is in 0 .. w_out - 1.
struct OutputColumns {
  int32_t stride;
  int32_t offset;
  int32_t w_out;
  int32_t phases;  // W phases of a tile, or the phases fused into channels
};

struct SharedLayout {
  int32_t stage_elems;  // accumulator elements per stage
  int32_t weight_elems;  // offset of the weight within a stage, in accumulator elements
  int32_t staged_bytes_begin;  // byte offset of the staged outputs
  int32_t list_bytes_begin;  // byte offset of the copy list: input offsets, weight offsets, weight destinations
  int32_t list_input_elems;
  int32_t list_weight_elems;
  int32_t channel_stride;  // of the staged outputs, in output elements
  int32_t column_stride;
  int32_t total_bytes;
};

// `problem` is the problem that the kernel computes: fused (problem/fuse.h) or adjoint (problem/adjoint.h) if
// applicable. Returns the bytes, at most INT32_MAX: the planner also probes tiles that are far too large.
inline int32_t make_shared_layout(const ConvTProblem& problem, const SimtTile& plan, SharedLayout* layout) {
  // More taps than any shared memory holds. The bound also keeps window sizes within 32 bits.
  constexpr int64_t kMostTaps = 1 << 16;
  if (int64_t{plan.chunk_kh} * plan.chunk_kw > kMostTaps) return INT32_MAX;
  const Instance& instance = kInstances[plan.instance];
  const int64_t accumulator_bytes = instance.dtype == DataType::kFloat64 ? 8 : 4;
  const Axis &h = problem.h, &w = problem.w;
  const Window rows = row_window(plan.chunk_kh, shift_step(h), h.position_step, plan.tile_h);
  const Window columns = column_window(plan.chunk_kw, shift_step(w), w.position_step, plan.tile_w);
  const int64_t positions = int64_t{plan.tile_n} * rows.extent * input_pitch(columns.extent);
  const int64_t input = int64_t{plan.chunk_ci} * (positions + 31);
  const int64_t weight = int64_t{plan.chunk_ci} * plan.block_co * ((plan.chunk_kh * plan.chunk_kw) | 1);
  const int64_t input_elems = round_up(input, 8);
  const int64_t stage_elems = input_elems + round_up(weight, 8);

  const int64_t run = int64_t{plan.tile_w} * plan.phases_w * plan.fused_w;
  const int64_t block_co = plan.block_co / plan.fused_w;
  const int64_t image_rows = int64_t{plan.tile_n} * plan.tile_h;
  const bool channels_last = is_channels_last(problem.y_stride);
  const int64_t channel_stride = channels_last ? 1 : (image_rows * run + 2) / 4 * 4 + 1;
  const int64_t column_stride = channels_last ? block_co + 1 : 1;
  const int64_t staged_elems = channels_last ? image_rows * run * column_stride : block_co * channel_stride;

  const int64_t stage_bytes = plan.stages * stage_elems * accumulator_bytes;
  const int64_t staged_bytes = staged_elems * element_bytes(problem.dtype);
  const bool reuse_stages = plan.phases_w == 1;
  const int64_t weights = (int64_t{plan.block_co} * plan.chunk_kh * plan.chunk_kw + 1) / 2 * 2;  // for 16-byte reads
  SharedMemory smem;
  smem.take(reuse_stages && staged_bytes > stage_bytes ? staged_bytes : stage_bytes);
  const int32_t staged_begin = reuse_stages ? 0 : smem.take(staged_bytes);
  const int32_t list_begin = smem.take(8 * (positions + weights) + 4 * weights, 16);
  if (layout != nullptr) {
    layout->stage_elems = static_cast<int32_t>(stage_elems);
    layout->weight_elems = static_cast<int32_t>(input_elems);
    layout->staged_bytes_begin = staged_begin;
    layout->list_bytes_begin = list_begin;
    layout->list_input_elems = static_cast<int32_t>(positions);
    layout->list_weight_elems = static_cast<int32_t>(weights);
    layout->channel_stride = static_cast<int32_t>(channel_stride);
    layout->column_stride = static_cast<int32_t>(column_stride);
    layout->total_bytes = smem.bytes();
  }
  return smem.bytes();
}

}  // namespace convt

namespace convt::simt {

// Kernel parameters. simt/launch.cpp fills them; they are constant for the whole grid.
struct Params {
  const void* x;  // [batch, c_in, h_in, w_in], any strides
  const void* w;  // [c_in, c_out / groups, k_h, k_w], any strides
  const void* bias;  // [c_out], contiguous, or null
  void* y;  // [batch, c_out, h_out, w_out], NCHW or channels_last
  ConvTProblem problem;
  TileShape shape;
  TileGrid grid;
  SharedLayout shared;
  OutputColumns columns;
  int32_t fused_log2;  // log2 of the W phases per output channel of the problem (problem/fuse.h)
  // Volumes, each with problem.batch planes as images. A source channel has depth_taps taps along the depth, which are
  // separate channels in the order of `ieee`: tap t of channel c is channel c * depth_taps + t.
  int64_t input_volume, output_volume;  // elements between volumes
  FastDivmod depth_taps;
  int64_t input_tap, weight_tap;  // elements between these taps
  int64_t weight_group_stride;  // elements between the weights of consecutive groups
  int64_t weight_phase_stride;  // elements between consecutive fused phases
  int32_t group_c_in;  // c_in / groups, with taps as channels; 0 if no tap along the depth is inside the source
  int32_t group_c_out;  // c_out / groups
  int32_t chunk_ci;
  int32_t chunk_kh;
  int32_t chunk_kw;
  int32_t stages;
  int32_t channel_groups_log2;  // log2(block_co / thread_co)
  bool channels_last_input;  // channels are contiguous in the input, columns are not
  bool channels_last_output;
  bool input_vectors;  // quads of input columns are contiguous and 16-byte aligned
  bool weight_vectors;  // the taps of consecutive output channels are contiguous and 16-byte aligned
};

}  // namespace convt::simt
