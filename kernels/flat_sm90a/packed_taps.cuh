// Packed weights -> slots in shared memory. Each slot holds several taps of a stage, to reduce barrier operations.
#pragma once

#include <cstdint>

#include "flat_sm90a/mainloop.cuh"
#include "pack/params.h"
#include "pipeline/ring.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::flat_sm90a {

#ifdef CONVT_HAS_WGMMA

// Producer thread: copies the weights of all tiles in the order in which consumers read them. `each_run(tile, load)`
// calls load(first, end) for each run of taps of a stage. Taps are counted from the first tap of the tile's H phase. A
// slot holds the taps of up to `slot_tiles` adjacent channel tiles.
template <typename EachRun>
__device__ __forceinline__ void load_packed_taps(const Params& params, uint32_t s_weights, pipeline::Ring ring,
                                                 int32_t slot_tiles, EachRun&& each_run) {
  const pack::PackedTaps& packed = params.packed;
  const uint32_t tile_bytes = params.slot_taps * params.tap_bytes;  // bytes of a channel tile in a slot
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const int32_t channel_tile = tile.channel_tile * slot_tiles;
    const int32_t tiles = slot_tiles == 1 ? 1 : min(slot_tiles, packed.channel_tiles - channel_tile);
    const char* g_stage = static_cast<const char*>(packed.weights) +
                          (int64_t{tile.group} * packed.channel_tiles + channel_tile) * packed.tile_step +
                          packed.phase_begin[tile.phase_h];
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_stage += packed.chunk_step[tile.phase_h]) {
      each_run(tile, [&](int32_t first, int32_t end) {
        for (int32_t tap = first; tap < end; tap += params.slot_taps) {
          const uint32_t bytes = min(params.slot_taps, end - tap) * params.tap_bytes;
          const char* g_taps = g_stage + int64_t{tap} * params.tap_bytes;
          const uint32_t s_slot = s_weights + ring.slot() * slot_tiles * tile_bytes;
          ring.wait_empty();  // the consumers have released the slot
          ptx::mbarrier_expect(ring.full(), tiles * bytes);
          for (int32_t i = 0; i < tiles; ++i) {
            ptx::bulk_copy(s_slot + i * tile_bytes, g_taps + i * packed.tile_step, bytes, ring.full());
          }
          ring.advance();
        }
      });
    }
  }
}

#endif

}  // namespace convt::flat_sm90a
