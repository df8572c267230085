// How the NHWC engine's stages come to shared memory: one thread, one copy for a box of the source and one for the
// weights of each tap.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

template <typename Shape>
__device__ __forceinline__ void load_tiles(const Params& params, const Stages& stages, uint32_t s_source,
                                           uint32_t s_weights, Ring sources, Ring weights) {
  for (int32_t number = first_tile(params); number < params.num_tiles; number += gridDim.x / params.parts) {
    const Tile tile = tile_of(params, number);
    const Window* windows = params.windows + first_window(params, tile);
    const char* g_tile = static_cast<const char*>(params.packed) + tile.channel_tile * params.packed_tile_step;
    int32_t chunk = stages.begin / params.num_windows, index = stages.begin % params.num_windows;
    for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
      const Window& window = windows[index];
      const int32_t taps = window.num_h * window.num_w;
      if (taps > 0) {
        const int32_t at[4] = {chunk * Shape::kStageChannels, tile.column * params.step_w + window.column,
                               tile.row * params.step_h + window.row, tile.image};
        sources.wait_empty();  // the consumers have read what was here
        ptx::mbarrier_expect(sources.full(), params.box_bytes);
        ptx::tensor_copy(s_source + sources.slot() * params.stage_bytes, &params.map, at, sources.full());
        sources.advance();
        const char* g = g_tile + window.packed + int64_t{chunk} * window.packed_step;
        for (int32_t tap = 0; tap < taps; ++tap, g += Shape::kTapBytes) {
          weights.wait_empty();  // the consumers have multiplied what was here
          ptx::mbarrier_expect(weights.full(), Shape::kTapBytes);
          ptx::bulk_copy(s_weights + weights.slot() * Shape::kTapBytes, g, Shape::kTapBytes, weights.full());
          weights.advance();
        }
      }
      if (++index == params.num_windows) {
        index = 0;
        ++chunk;
      }
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
