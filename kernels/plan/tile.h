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
  int32_t co_tiles;    // per group
  int32_t w_tiles;     // tiles of tile_w positions
  int32_t w_splits;    // sets of phases_w neighbouring W phases
  int32_t h_phases;    // min(stride_h, h_out)
  int32_t h_tiles;     // tiles of tile_h positions
  int32_t groups;
  int64_t n_tiles;
};

struct Tile {
  int64_t n_begin;     // images n_begin .. + tile_n
  int32_t group;
  int32_t co_begin;    // within the group
  int32_t phase_h;
  int32_t p_h_begin;   // positions of phase_h
  int32_t phase_w_begin;
  int32_t p_w_begin;   // positions of every W phase
};

CONVT_HOST_DEVICE inline TileGrid make_tile_grid(const ConvTProblem& problem, const TileShape& shape) {
  TileGrid grid;
  const int64_t h_phases = problem.h.stride < problem.h.out ? problem.h.stride : problem.h.out;
  const int64_t w_phases = problem.w.stride < problem.w.out ? problem.w.stride : problem.w.out;
  grid.co_tiles = static_cast<int32_t>(ceil_div(problem.c_out / problem.groups, shape.block_co));
  grid.w_tiles = static_cast<int32_t>(ceil_div(num_positions(problem.w, 0), shape.tile_w));
  grid.w_splits = static_cast<int32_t>(ceil_div(w_phases, shape.phases_w));
  grid.h_phases = static_cast<int32_t>(h_phases);
  grid.h_tiles = static_cast<int32_t>(ceil_div(num_positions(problem.h, 0), shape.tile_h));
  grid.groups = static_cast<int32_t>(problem.groups);
  grid.n_tiles = ceil_div(problem.batch, shape.tile_n);
  return grid;
}

CONVT_HOST_DEVICE inline int64_t num_tiles(const TileGrid& grid) {
  return grid.n_tiles * grid.groups * grid.h_tiles * grid.h_phases * grid.w_splits * grid.w_tiles * grid.co_tiles;
}

// Neighbouring blocks share their input in L2: channel tiles first, then the row, then the phases
// and positions of the next rows, then groups, then images.
CONVT_HOST_DEVICE inline Tile tile_of_block(const TileGrid& grid, const TileShape& shape, int64_t block) {
  Tile tile;
  auto next_digit = [&block](int64_t count) {
    const int64_t digit = block % count;
    block /= count;
    return static_cast<int32_t>(digit);
  };
  tile.co_begin = next_digit(grid.co_tiles) * shape.block_co;
  tile.p_w_begin = next_digit(grid.w_tiles) * shape.tile_w;
  tile.phase_w_begin = next_digit(grid.w_splits) * shape.phases_w;
  tile.phase_h = next_digit(grid.h_phases);
  tile.p_h_begin = next_digit(grid.h_tiles) * shape.tile_h;
  tile.group = next_digit(grid.groups);
  tile.n_begin = block * shape.tile_n;
  return tile;
}

}  // namespace convt
