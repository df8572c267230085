// How the NHWC engine's stages come to shared memory: one thread copies boxes of the source, another the weights of
// each tap. Each is elected, so that the compiler knows all its values to be the same for its warp: a copy's addresses
// otherwise cost more than a stage's products.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, const Stages& stages, uint32_t s_source,
                                            Ring sources) {
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
    const Tile tile = tile_of(params, number);
    const int32_t column = tile.column * params.step_w, row = tile.row * params.step_h;
    int32_t index = first_window(params, tile) + stages.first_window, chunk = stages.first_chunk;
    for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
      const Window& window = params.windows[index];
      if (window.num_h > 0) {
        const int32_t at[4] = {chunk * Shape::kStageChannels, column + window.column, row + window.row, tile.image};
        sources.wait_empty();  // the consumers have read what was here
        ptx::mbarrier_expect(sources.full(), params.box_bytes);
        ptx::tensor_copy(s_source + sources.slot() * params.stage_bytes, &params.map, at, sources.full());
        sources.advance();
      }
      if (++chunk == params.num_chunks) {
        chunk = 0;
        ++index;
      }
    }
  }
}

// The weights of a tap for a stage, as they are in memory.
template <typename Shape>
__device__ __forceinline__ void load_direct(const Params& params, uint32_t s_tap, int32_t first_channel, int32_t column,
                                            int32_t tap, uint32_t barrier) {
  constexpr int kChannels = nhwc_direct_channels(Shape::kElement), kBytes = kChannels * Shape::kRowBytes;
  if (params.tap_channels > 0) {
    const int32_t at[5] = {tap * params.tap_channels + first_channel, 0, 0, 0, column / kChannels};
    ptx::tensor_copy(s_tap, &params.weights, at, barrier);
    return;
  }
#pragma unroll
  for (int i = 0; i < Shape::kN / kChannels; ++i) {
    const int32_t at[5] = {first_channel, 0, 0, (column + i * kChannels) / 2, tap};
    ptx::tensor_copy(s_tap + i * kBytes, &params.weights, at, barrier);
  }
}

template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, const Stages& stages, uint32_t s_weights,
                                             Ring weights) {
  ptx::wait_for_previous_kernel();  // which packs, and began when all before it had ended: others need not wait
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
    const Tile tile = tile_of(params, number);
    const char* g_tile = static_cast<const char*>(params.packed) + tile.channel_tile * params.packed_tile_step;
    int32_t index = first_window(params, tile) + stages.first_window, chunk = stages.first_chunk;
    for (int32_t stage = stages.begin; stage < stages.end; ++stage) {
      const Window& window = params.windows[index];
      const char* g = g_tile + window.packed + int64_t{chunk} * window.packed_step;
      int32_t row_tap = window.tap;
      for (int32_t tap_h = 0; tap_h < window.num_h; ++tap_h, row_tap += window.tap_row_step) {
        int32_t tap = row_tap;
        for (int32_t tap_w = 0; tap_w < window.num_w; ++tap_w, tap += window.tap_column_step) {
          const uint32_t s_tap = s_weights + weights.slot() * Shape::kTapBytes;
          weights.wait_empty();  // the consumers have multiplied what was here
          ptx::mbarrier_expect(weights.full(), Shape::kTapBytes);
          if (params.packed != nullptr) {
            ptx::bulk_copy(s_tap, g, Shape::kTapBytes, weights.full());
            g += Shape::kTapBytes;
          } else {
            load_direct<Shape>(params, s_tap, chunk * Shape::kStageChannels, tile.channel_tile * Shape::kN, tap,
                               weights.full());
          }
          weights.advance();
        }
      }
      if (++chunk == params.num_chunks) {
        chunk = 0;
        ++index;
      }
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
