// Kernel of the flat family: one or two persistent CTAs per SM. One or two consumer warpgroups multiply and store, and
// two producer threads load. One warpgroup accumulates each result, in an order that does not depend on timing.
#pragma once

#include "flat_sm90a/epilogue.cuh"
#include "flat_sm90a/mainloop.cuh"
#include "hopper/kernel.cuh"
#include "pack/params.h"

namespace convt::flat_sm90a {

#ifdef CONVT_HAS_WGMMA

// Producer thread: copies windows of the packed source, one plane per copy.
template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, uint32_t s_source, Ring ring) {
  const uint32_t window_bytes = params.window * 16;
  const int32_t planes = 2 * params.k_steps;
  const int64_t plane_step = params.sub_tiles * params.plane_bytes;
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const char* g_chunk = static_cast<const char*>(params.source) +
                          tile.group * params.group_planes * params.plane_bytes + int64_t{tile.begin} * 16;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_chunk += planes * plane_step) {
      for (int32_t sub = 0; sub < params.sub_tiles; ++sub) {
        const int32_t run = first_run<Shape>(params, tile, sub);
        if (params.run_begin[run] == params.run_begin[run + Shape::kPhases]) continue;  // no taps
        const char* g_window = g_chunk + sub * params.plane_bytes +
                               int64_t{params.window_begin[params.sub_tiles > 1 ? sub : tile.phase_h]} * 16;
        uint32_t s_window = s_source + ring.slot() * planes * window_bytes;
        ring.wait_empty();  // the consumers have released the slot
        ptx::mbarrier_expect(ring.full(), planes * window_bytes);
        for (int32_t plane = 0; plane < planes; ++plane) {
          ptx::bulk_copy(s_window, g_window, window_bytes, ring.full());
          g_window += plane_step;
          s_window += window_bytes;
        }
        ring.advance();
      }
    }
  }
}

// Producer thread: copies the packed weights of all tiles in the order in which consumers read them. `each_run(tile,
// load)` calls load(first, end) for each run of taps of a stage. Taps are counted from the first tap of the tile's H
// phase. A slot holds several taps of a stage, to reduce barrier operations, for up to `slot_tiles` adjacent channel
// tiles.
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

template <typename Shape>
struct Convolution : hopper::Slots<Params> {
  using Params = flat_sm90a::Params;
  // Registers, including the producer warpgroup: 216 + 40 = 2 * 128, 2 * 232 + 40 = 3 * 168.
  static constexpr hopper::Roles kRoles{flat_threads(Shape::kConsumers), 3 - Shape::kConsumers, Shape::kConsumers,
                                        Shape::kConsumers == 1 ? 216 : 232, 40};

#ifdef CONVT_HAS_WGMMA
  float* const s_staged;

  __device__ __forceinline__ Convolution(const Params& params, unsigned char* s_bytes)
      : Slots(params, s_bytes), s_staged(reinterpret_cast<float*>(s_bytes + params.staged_begin)) {}

  __device__ __forceinline__ void init_barriers() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, count(), 1, 4 * Shape::kConsumers);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void assign_work() const {}

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    Ring sources = this->sources(), weights = this->weights();
    const int32_t consumer = Shape::kConsumers == 1 ? 0 : warp / 4;
    float* s_mine = s_staged + consumer * kFlatStagedFloats;
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
      const Tile tile = tile_of(params, number);
      Accumulators<Shape> acc;
      multiply_tile<Shape>(acc, params, tile, consumer, s_source, s_weights, &sources, &weights);
      const int32_t channel_tile =
          params.split_channels ? tile.channel_tile * Shape::kConsumers + consumer : tile.channel_tile;
      const int32_t first_position = tile.begin + (params.split_channels ? 0 : consumer * Shape::kPositions);
      const int32_t first_channel = channel_tile * kFlatChannels;
      if (params.steps.num_steps == 0) {
        store_tile<false>(acc, tile, consumer, first_channel, first_position, s_mine);
      } else {
        store_tile<true>(acc, tile, consumer, first_channel, first_position, s_mine);
      }
    }
  }

  template <bool kSteps>
  __device__ __forceinline__ void store_tile(const Accumulators<Shape>& acc, const Tile& tile, int32_t consumer,
                                             int32_t first_channel, int32_t first_position, float* s_mine) const {
    if (params.channels_last) {
      store_channels<Shape, kSteps>(acc, params, tile, consumer, first_channel, first_position, s_mine);
    } else {
      store_columns<Shape, kSteps>(acc, params, tile, first_channel, first_position, s_mine);
    }
  }

  // The two producer threads are in different warps. Threads of one warp would wait for each other.
  __device__ __forceinline__ void run_producer(int32_t warp) const {
    ptx::wait_for_previous_kernel();  // the packing kernel; consumers read its results only from filled slots
    if (warp > 1 || !ptx::elect_one()) return;
    if (warp == 0) {
      load_source<Shape>(params, s_source, sources());
    } else {
      const auto each_run = [&](const Tile& tile, auto&& load) {
        const int32_t begin = params.run_begin[first_run<Shape>(params, tile, 0)];
        for (int32_t sub = 0; sub < params.sub_tiles; ++sub) {
          const int32_t run = first_run<Shape>(params, tile, sub);
          load(params.run_begin[run] - begin, params.run_begin[run + Shape::kPhases] - begin);
        }
      };
      load_packed_taps(params, s_weights, weights(), params.split_channels ? Shape::kConsumers : 1, each_run);
    }
  }
#endif
};

}  // namespace convt::flat_sm90a
