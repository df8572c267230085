// How the window engine's producer fills stages: one thread, a copy for the weights and one for each class of the
// source.
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
    const int32_t row_classes = 1 << params.row_classes_log2, channel_classes = 1 << params.channel_classes_log2;
    const int32_t row = tile.row + params.first_h;
    int32_t channel = tile.group * params.k_channels;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const uint32_t s_slot = s_slots + ring.slot() * params.slot_bytes;
      ring.wait_empty();  // the consumers have multiplied what was here
      ptx::mbarrier_expect(ring.full(), params.source_bytes + Shape::kWeightBytes);
      uint32_t s_box = s_slot;
      for (int32_t i = row; i < row + row_classes; ++i) {
        const CUtensorMap* maps = params.source + ((i & row_classes - 1) << params.channel_classes_log2);
        const int32_t at[4] = {tile.column + params.first_w, channel >> params.channel_classes_log2,
                               i >> params.row_classes_log2, tile.image};
        for (int32_t d = 0; d < channel_classes; ++d, s_box += params.box_bytes) {
          ptx::tensor_copy(s_box, maps + d, at, ring.full());
        }
      }
      ptx::bulk_copy(s_slot + params.source_bytes, g_weights, Shape::kWeightBytes, ring.full());
      channel += kChannels;
      g_weights += Shape::kWeightBytes;
      ring.advance();
    }
  }
}

#endif

}  // namespace convt::window_sm90a
