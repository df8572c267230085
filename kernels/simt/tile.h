// Which outputs a CTA owns. Shared by the planner's tests (host) and the kernels (device), so that
// "every output is written exactly once" is proved on the CPU for the code that runs on the GPU.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The part of a plan and problem that decides the grid.
struct TileShape {
  int32_t block_co, tile_n, tile_h, tile_w, phases_w;
};

// Counts along each digit of the block index, fastest first.
struct TileGrid {
  int32_t co_tiles;  // per group
  int32_t w_tiles;   // tiles of tile_w positions
  int32_t w_splits;  // sets of phases_w neighbouring W phases; the last may be smaller
  int32_t h_phases;  // min(stride_h, h_out)
  int32_t h_tiles;   // tiles of tile_h positions
  int32_t groups;
  int32_t n_tiles;
  // Not digits:
  int32_t w_phases;  // min(stride_w, w_out)
  int32_t w_origin;  // positions that the first tile begins before position 0
};

struct Tile {
  int32_t n_begin;        // images n_begin .. + tile_n
  int32_t group;
  int32_t co_begin;       // within the group
  int32_t phase_h;
  int32_t p_h_begin;      // positions of phase_h
  int32_t phase_w_begin;  // W phases phase_w_begin .. + num_phases_w
  int32_t num_phases_w;
  int32_t p_w_begin;      // positions of every W phase; the first tile's may be negative
};

// With one W phase whose taps are neighbours, tiles begin where the input columns they read begin on a
// multiple of 4, so that whole quads can be copied: at up to 3 positions before the first output, unless
// that takes one tile more.
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

// Neighbouring blocks share their input in L2: channel tiles first, then the row, then the phases
// and positions of the next rows, then groups, then images.
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
  tile.n_begin = static_cast<int32_t>(block) * shape.tile_n;
  tile.phase_w_begin = w_split * shape.phases_w;
  const int32_t phases_left = grid.w_phases - tile.phase_w_begin;
  tile.num_phases_w = phases_left < shape.phases_w ? phases_left : shape.phases_w;
  return tile;
}

}  // namespace convt
