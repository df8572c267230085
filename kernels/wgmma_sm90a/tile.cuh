// Which results a tile owns, which taps it has, and where the positions of its operand planes lie in the source.
#pragma once

#include "element/operand.cuh"
#include "hopper/tiles.cuh"
#include "pipeline/ring.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/shared.cuh"
#include "wgmma_sm90a/instances.h"
#include "wgmma_sm90a/params.h"

namespace convt::wgmma_sm90a {

using element::to_element;
using hopper::first_tile;
using hopper::tile_step;
using pipeline::Ring;

// A CTA is a warpgroup that multiplies, three loader warps and one warp for the weights.
inline constexpr int kLoaderThreads = kWgmmaLoaders;
inline constexpr int kConsumerThreads = 128;
// Numbers of named barriers.
inline constexpr int kLoaderBarrier = 1, kStagingBarrier = 2;

#ifdef CONVT_HAS_WGMMA

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

// A walk over all stages of all tiles of this CTA.
struct StageWalk {
  int32_t number;
  int32_t chunk;
  Tile tile;

  __device__ __forceinline__ void begin(const Params& params) {
    number = first_tile(params);
    chunk = 0;
    if (number < params.num_tiles) tile = tile_of(params, number);
  }
  __device__ __forceinline__ bool done(const Params& params) const { return number >= params.num_tiles; }
  __device__ __forceinline__ void advance(const Params& params) {
    if (++chunk < params.num_chunks) return;
    chunk = 0;
    number += tile_step();
    if (number < params.num_tiles) tile = tile_of(params, number);
  }
};

// In a list of places: there is nothing, so that zeros take its place.
inline constexpr int32_t kOutside = INT32_MIN;

// A position of the operand planes in the source.
struct SourcePlace {
  int32_t image, row, column;  // of the source; the image counts from the tile's first
  int32_t line;                // its row's place among all window rows of the tile, whose W residues share rows
  int32_t window_column;       // columns from the first one that the tile reads
  bool inside;
};

__device__ __forceinline__ bool row_exists(const Params& params, const Tile& tile, int32_t image, int32_t row) {
  return static_cast<uint32_t>(row) < static_cast<uint32_t>(params.source_h) && tile.n_begin + image < params.batch;
}

// Position number `index` of a plane: [H residue][W residue][image][window row][column].
__device__ __forceinline__ SourcePlace source_place(const Params& params, const Tile& tile, int32_t index) {
  const TapProgram& program = params.program;
  SourcePlace place;
  int32_t column, row, sub_h = 0, sub_w = 0;
  place.image = 0;
  const int32_t line = params.by_pitch(index, &column);
  if (params.tile_n == 1 && program.sub_h * program.sub_w == 1) {
    row = line;
  } else {
    const int32_t sub = params.by_images(params.by_rows(line, &row), &place.image);
    sub_h = params.by_sub_w(sub, &sub_w);
  }
  place.line = (sub_h * params.tile_n + place.image) * params.rows + row;
  const AxisWindow& h = program.window_h[program.sub_h > 1 ? sub_h : tile.phase_h];
  const AxisWindow& w = program.window_w[sub_w];
  place.row = (tile.p_h_begin + h.shift + row) * program.source_step_h + h.residue;
  place.column = (tile.p_w_begin + w.shift + column) * program.source_step_w + w.residue;
  place.window_column = place.column - tile.p_w_begin * program.source_step_w - params.first_column;
  place.inside = row_exists(params, tile, place.image, place.row) &&
                 static_cast<uint32_t>(place.column) < static_cast<uint32_t>(params.source_w);
  return place;
}

// The element of the source, in the group's channel 0, that a tile's offsets count from.
__device__ __forceinline__ int64_t corner_of(const Params& params, const Tile& tile) {
  return tile.n_begin * params.source_stride[0] + int64_t{tile.group} * params.k_channels * params.source_stride[1] +
         int64_t{tile.p_h_begin} * params.program.source_step_h * params.source_stride[2] +
         int64_t{tile.p_w_begin} * params.program.source_step_w * params.source_stride[3];
}

// In elements; wgmma_sm90a/plan.cpp makes sure that 32 bits hold it.
__device__ __forceinline__ int32_t offset_from_corner(const Params& params, const Tile& tile,
                                                      const SourcePlace& place) {
  const int64_t offset = place.image * params.source_stride[0] +
                         (place.row - tile.p_h_begin * params.program.source_step_h) * params.source_stride[2] +
                         (place.column - tile.p_w_begin * params.program.source_step_w) * params.source_stride[3];
  return static_cast<int32_t>(offset);
}

// 4 float32 channels of a position -> operand planes: rounded, or as a high and a low term.
template <typename Traits>
__device__ __forceinline__ void store_float32(const Params& params, uint32_t s_place, const uint32_t (&r)[4]) {
  uint32_t high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = __float_as_uint(ptx::round_tf32(__uint_as_float(r[i])));
  ptx::store_shared(s_place, high);
  if constexpr (Traits::kSplit) {
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      low[i] = __float_as_uint(element::low_term(__uint_as_float(r[i]), __uint_as_float(high[i])));
    ptx::store_shared(s_place + 2 * params.k_steps * params.plane_positions * 16, low);
  }
}

// What this thread stored is seen by the tensor cores, and its warp has filled its share of the slot.
__device__ __forceinline__ void announce(const Ring& ring, int32_t thread) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (thread % 32 == 0) ptx::mbarrier_arrive(ring.full());
}

#endif

}  // namespace convt::wgmma_sm90a
