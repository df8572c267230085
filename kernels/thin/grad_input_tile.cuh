// A tile of the gradient of the input, and which of its taps read nothing. Called by the kernels of thin/ and
// mma_sm90a/.
#pragma once

#include "problem/problem.h"
#include "thin/tile.cuh"

namespace convt::thin {

// An image and its first position.
struct GradInputTile {
  int32_t image;
  int32_t h;
  int32_t w;
};

// Of parameters with by_tiles_w, by_tiles_h, tile_w and tile_h.
template <typename Params>
__device__ __forceinline__ GradInputTile grad_input_tile(const Params& params, int32_t index) {
  GradInputTile tile;
  int32_t tile_w, tile_h;
  tile.image = divide(divide(index, params.by_tiles_w, &tile_w), params.by_tiles_h, &tile_h);
  tile.w = tile_w * params.tile_w;
  tile.h = tile_h * params.tile_h;
  return tile;
}

// The taps of a position along one axis that lie outside grad_output, one bit each.
__device__ __forceinline__ uint32_t taps_outside(const Axis& axis, int32_t position) {
  int32_t place = position * axis.stride - axis.padding;
  uint32_t bits = 0;
#pragma unroll 1
  for (int32_t k = 0; k < axis.kernel; ++k, place += axis.dilation) {
    bits |= static_cast<uint32_t>(place < 0 || place >= axis.out) << k;
  }
  return bits;
}

}  // namespace convt::thin
