// Tile scheduler of persistent CTAs. Must not know: tile contents.
#pragma once

#include <cstdint>

namespace convt::hopper {

// The CTAs of a cluster split the work of one tile, and process no other tile.
template <typename Params>
__device__ __forceinline__ int32_t first_tile(const Params& params) {
  if constexpr (requires { params.splits; }) return static_cast<int32_t>(blockIdx.x) / params.splits;
  return static_cast<int32_t>(blockIdx.x);
}

// Step between the tiles of a CTA. In a cluster it exceeds the last tile.
__device__ __forceinline__ int32_t tile_step() { return static_cast<int32_t>(gridDim.x); }

}  // namespace convt::hopper
