// The results of a CTA.
#pragma once

#include "mma_sm90a/layout.h"
#include "tiling/tile.cuh"

namespace convt::mma_sm90a {

using tiling::Tile;
using tiling::tile_of;

// The properties that all tiles of a CTA share.
struct Pass {
  int32_t group;
  int32_t co;  // first result channel within the group
  int32_t num_co;
  int32_t phase_h;  // H phase with split phases; otherwise 0
  int32_t num_phases_h;
  uint32_t filled_h;  // bit v: H phase number v of the pass has taps
  int32_t first_tile;
  int32_t end_tile;
};

__device__ __forceinline__ Pass pass_of_block(const Params& params) {
  Pass pass;
  int32_t index = static_cast<int32_t>(blockIdx.x) / params.passes;
  pass.first_tile = static_cast<int32_t>(int64_t{index} * params.num_tiles / params.blocks_per_pass);
  pass.end_tile = static_cast<int32_t>(int64_t{index + 1} * params.num_tiles / params.blocks_per_pass);
  index = static_cast<int32_t>(blockIdx.x) % params.passes;
  const bool split = params.split_phases > 1;
  pass.phase_h = index % params.split_phases;
  index /= params.split_phases;
  pass.num_phases_h = split ? 1 : params.h.out_stride;
  pass.filled_h = split ? params.h.filled >> pass.phase_h & 1 : params.h.filled;
  pass.co = index % params.co_tiles * params.block_co;
  pass.num_co = min(params.block_co, params.group_co - pass.co);
  pass.group = index / params.co_tiles;
  return pass;
}

// Element offset of a row of the tile's image in the result, for the pass's first channel.
__device__ __forceinline__ int64_t result_row(const Params& params, const Pass& pass, const Tile& tile, int32_t row) {
  return tile.image * params.result_stride[0] +
         (int64_t{pass.group} * params.group_co + pass.co) * params.result_stride[1] + row * params.result_stride[2];
}

}  // namespace convt::mma_sm90a
