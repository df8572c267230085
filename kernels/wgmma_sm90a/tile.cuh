// Which results a tile owns.
#pragma once

#include "wgmma_sm90a/params.h"

namespace convt::wgmma_sm90a {

struct Tile {
  int32_t channel_tile;  // kN result channels
  int32_t group;
  int32_t n_begin, p_h_begin, p_w_begin;  // images and positions
  int32_t phase_h;
  int32_t phase_w_begin;
};

// Neighbouring tiles share their source in L2: channel tiles first, then columns, phases, rows, groups, images.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  auto next_digit = [&number](const Divisor& count) {
    int32_t digit;
    number = count(number, &digit);
    return digit;
  };
  tile.channel_tile = next_digit(params.channel_tiles);
  tile.p_w_begin = next_digit(params.w_tiles) * params.tile_w;
  tile.phase_w_begin = next_digit(params.w_splits) * params.split_phases;
  tile.phase_h = next_digit(params.h_phases);
  tile.p_h_begin = next_digit(params.h_tiles) * params.tile_h;
  tile.group = next_digit(params.group_tiles);
  tile.n_begin = number * params.tile_n;
  return tile;
}

// The runs of taps of W phase `phase` of a tile.
struct RunRange {
  int32_t begin, end;
};

__device__ __forceinline__ RunRange runs_of(const Params& params, const Tile& tile, int32_t phase) {
  const TapProgram& program = params.program;
  if (program.phases_h * program.phases_w == 1) return {0, program.num_runs};
  const int32_t phase_w = tile.phase_w_begin + phase;
  if (phase_w >= program.phases_w) return {0, 0};
  const int32_t run = tile.phase_h * program.phases_w + phase_w;
  return {run, run + 1};
}

}  // namespace convt::wgmma_sm90a
