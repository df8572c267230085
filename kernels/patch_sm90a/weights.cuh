// The weights of the patch engine's tiles: packed blocks of 64 columns -> slots in shared memory.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// Where a block of a tile's weights lies, from the tile's first. Blocks are channels, or two rows of two taps, or a row
// of four.
template <typename Shape>
__device__ __forceinline__ int64_t block_place(const Params& params, int32_t block) {
  if constexpr (Shape::kGathers) return block * params.packed_tile_step;
  if (params.kernel_w != 2) return block * Shape::kBlockBytes;
  return block / 2 * params.packed_row_step + block % 2 * Shape::kBlockBytes;
}

// One thread.
template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, const Stages& stages, uint32_t s_weights,
                                             uint32_t s_barriers) {
  const int32_t chunk_step = (Shape::kGathers ? 1 : params.kernel_w) * Shape::kBlockBytes;
  Ring ring(s_barriers, params.weight_slots);
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
    const Tile tile = tile_of<Shape>(params, number);
    const int32_t first = tile.channel_tile * (Shape::kGathers ? Shape::kBlocks : 1);
    const int32_t blocks = Shape::kGathers ? min(Shape::kBlocks, params.channel_blocks - first) : Shape::kBlocks;
    const char* g_chunk = static_cast<const char*>(params.packed) +
                          (int64_t{tile.group} * params.channel_blocks + first) * params.packed_tile_step +
                          tile.tap_h * params.packed_row_step + tile.tap_w * Shape::kBlockBytes +
                          int64_t{stages.begin} * chunk_step;
    for (int32_t chunk = stages.begin; chunk < stages.end; ++chunk, g_chunk += chunk_step) {
      for (int32_t begin = 0; begin < Shape::kBlocks; begin += Shape::kSlotBlocks) {
        const int32_t end = min(begin + Shape::kSlotBlocks, blocks);
        ring.wait_empty();  // the consumers have multiplied what was here
        ptx::mbarrier_expect(ring.full(), max(end - begin, 0) * Shape::kBlockBytes);
        uint32_t s_block = s_weights + ring.slot() * Shape::kSlotBlocks * Shape::kBlockBytes;
        for (int32_t block = begin; block < end; ++block, s_block += Shape::kBlockBytes) {
          ptx::bulk_copy(s_block, g_chunk + block_place<Shape>(params, block), Shape::kBlockBytes, ring.full());
        }
        ring.advance();
      }
    }
    if (params.resident) return;
  }
}

#endif

}  // namespace convt::patch_sm90a
