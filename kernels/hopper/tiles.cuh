// Which tiles a persistent CTA walks over. Must not know: what a tile is.
#pragma once

#include <cstdint>

namespace convt::hopper {

// CTAs of a cluster share a tile, each of them with a split of the work, and have no other.
template <typename Params>
__device__ __forceinline__ int32_t first_tile(const Params& params) {
  if constexpr (requires { params.splits; }) return static_cast<int32_t>(blockIdx.x) / params.splits;
  return static_cast<int32_t>(blockIdx.x);
}

// From one of a CTA's tiles to its next; beyond the last one in a cluster.
__device__ __forceinline__ int32_t tile_step() { return static_cast<int32_t>(gridDim.x); }

}  // namespace convt::hopper
