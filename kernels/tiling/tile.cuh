// Tiles of positions of one image, and taps of the gradient of the input outside grad_output. Called by the kernels of
// thin/ and mma_sm90a/.
#pragma once

#include "problem/fast_divmod.h"
#include "problem/problem.h"

namespace convt::tiling {

// A tile of the forward pass: an image and its first positions.
struct Tile {
  int64_t image;
  int32_t q_h;
  int32_t q_w;
};

// `params` contains by_tiles_w, by_tiles_h, tile_w, tile_h and axes h and w (tiling/axis.h).
template <typename Params>
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t index) {
  Tile tile;
  int32_t tile_w, tile_h;
  const int32_t row = params.by_tiles_w(index, &tile_w);
  tile.image = params.by_tiles_h(row, &tile_h);
  tile.q_w = params.w.first + tile_w * params.tile_w;
  tile.q_h = params.h.first + tile_h * params.tile_h;
  return tile;
}

// A tile of the gradient of the input: an image and its first position.
struct GradInputTile {
  int32_t image;
  int32_t h;
  int32_t w;
};

// `params` contains by_tiles_w, by_tiles_h, tile_w and tile_h.
template <typename Params>
__device__ __forceinline__ GradInputTile grad_input_tile(const Params& params, int32_t index) {
  GradInputTile tile;
  int32_t tile_w, tile_h;
  tile.image = params.by_tiles_h(params.by_tiles_w(index, &tile_w), &tile_h);
  tile.w = tile_w * params.tile_w;
  tile.h = tile_h * params.tile_h;
  return tile;
}

// One bit per tap of a position: whether it reads outside grad_output along one axis.
__device__ __forceinline__ uint32_t taps_outside(const Axis& axis, int32_t position) {
  int32_t place = position * axis.stride - axis.padding;
  uint32_t bits = 0;
#pragma unroll 1
  for (int32_t k = 0; k < axis.kernel; ++k, place += axis.dilation) {
    bits |= static_cast<uint32_t>(place < 0 || place >= axis.out) << k;
  }
  return bits;
}

}  // namespace convt::tiling
