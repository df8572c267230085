// How the window engine's producer fills stages: one thread, two copies a stage.
#pragma once

#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"
#include "window_sm90a/tile.cuh"

namespace convt::window_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

template <typename Shape>
__device__ __forceinline__ void load_tiles(const Params& params, uint32_t s_slots, uint32_t s_barriers) {
  constexpr int kChannels = window_channels(Shape::kElement);
  Ring ring(s_barriers, params.slots);
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const char* g_weights =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step;
    int32_t at[4] = {tile.column + params.first_w, tile.group * params.k_channels, tile.row + params.first_h,
                     tile.image};
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const uint32_t s_slot = s_slots + ring.slot() * params.slot_bytes;
      ring.wait_empty();  // the consumers have multiplied what was here
      ptx::mbarrier_expect(ring.full(), params.source_bytes + Shape::kWeightBytes);
      ptx::tensor_copy(s_slot, &params.source, at, ring.full());
      ptx::bulk_copy(s_slot + params.source_bytes, g_weights, Shape::kWeightBytes, ring.full());
      at[1] += kChannels;
      g_weights += Shape::kWeightBytes;
      ring.advance();
    }
  }
}

#endif

}  // namespace convt::window_sm90a
