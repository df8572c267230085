// The producers: source -> operand planes, and packed weights -> weight slots.
//
// An operand slot is planes of [position][16 bytes]: 4 TF32 or 8 half-precision channels of every position of the
// tile's windows. Where channels are neighbours in memory they are copied there as they are (channels.cuh); otherwise
// rows are copied as they are into raw slots, and from there converted (columns.cuh). What lies outside the source is
// zero, so that a product with it adds nothing.
#pragma once

#include "pipeline/ring.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "wgmma_sm90a/channels.cuh"
#include "wgmma_sm90a/columns.cuh"
#include "wgmma_sm90a/layout.h"
#include "wgmma_sm90a/params.h"
#include "wgmma_sm90a/tile.cuh"
#include "wgmma_sm90a/traits.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// What this thread stored is seen by the tensor cores, and its warp has filled its part of the slot.
__device__ __forceinline__ void announce(const Ring& ring, int32_t thread) {
  ptx::fence_proxy_async();
  __syncwarp();
  if (thread % 32 == 0) ptx::mbarrier_arrive(ring.full());
}

// All stages of all tiles by way of raw slots. Stages of all of these but one are always on their way, also across
// tiles, so that memory has requests to work on.
template <typename Traits, bool kGather>
__device__ __forceinline__ void load_columns(const Params& params, uint32_t s_source, uint32_t s_raw, int32_t* s_lists,
                                             uint32_t s_barriers, int32_t thread) {
  const uint32_t stage_bytes = Traits::kTerms * 2 * params.k_steps * params.plane_positions * 16;
  int32_t* s_places = s_lists;
  int32_t* s_lines = s_lists + params.num_places;
  Ring ring(s_barriers, params.source_slots);
  StageWalk copied, converted;  // the next stages
  copied.begin(params);
  converted.begin(params);
  int32_t convert_slot = 0, copy_slot = 0;
  auto copy_next = [&] {
    if (!copied.done(params)) {
      if (copied.chunk == 0) {
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);  // everybody has copied the tile before
        list_lines(params, copied.tile, s_lines, thread);
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
      }
      copy_rows<Traits, kGather>(params, copied.tile, copied.chunk, s_lines, s_raw + copy_slot * params.raw_bytes,
                                 thread);
      copied.advance(params);
      copy_slot = copy_slot + 1 == params.raw_slots ? 0 : copy_slot + 1;
    }
    ptx::cp_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < params.raw_slots - 1; ++i) copy_next();
#pragma unroll 1
  while (!converted.done(params)) {
    if (params.raw_slots == kRawSlots) {
      ptx::cp_async_wait<kRawSlots - 2>();
    } else {
      ptx::cp_async_wait<kRawSlots - 3>();
    }
    // Every loader's copies of this stage are here, and every loader has left the raw slot before it.
    ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
    copy_next();
    if (kGather && converted.chunk == 0) {
      list_places<Traits>(params, converted.tile, s_places, thread);
      ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
    }
    ring.wait_empty();  // the consumers have multiplied what was here
    convert_stage<Traits, kGather>(params, s_places, s_raw + convert_slot * params.raw_bytes,
                                   s_source + ring.slot() * stage_bytes, thread);
    convert_slot = convert_slot + 1 == params.raw_slots ? 0 : convert_slot + 1;
    announce(ring, thread);
    ring.advance();
    converted.advance(params);
  }
}

// All stages of all tiles straight into operand slots; kDirectAhead stages are on their way.
template <typename Traits>
__device__ __forceinline__ void load_channels(const Params& params, uint32_t s_source, int32_t* s_places,
                                              uint32_t s_barriers, int32_t thread) {
  const uint32_t stage_bytes = Traits::kTerms * 2 * params.k_steps * params.plane_positions * 16;
  Ring copy_ring(s_barriers, params.source_slots), ring(s_barriers, params.source_slots);
  StageWalk copied;  // the next stage
  copied.begin(params);
  auto copy_next = [&] {
    if (!copied.done(params)) {
      if (copied.chunk == 0) {
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);  // everybody has copied the tile before
        list_positions(params, copied.tile, s_places, thread);
        ptx::named_barrier(kLoaderBarrier, kLoaderThreads);
      }
      copy_ring.wait_empty();  // the consumers have multiplied what was here
      copy_positions<Traits>(params, copied.tile, copied.chunk, s_places, s_source + copy_ring.slot() * stage_bytes,
                             thread);
      copied.advance(params);
      copy_ring.advance();
    }
    ptx::cp_async_commit();
  };
#pragma unroll 1
  for (int i = 0; i < kDirectAhead; ++i) copy_next();
  int32_t stages = (params.num_tiles - static_cast<int32_t>(blockIdx.x) + static_cast<int32_t>(gridDim.x) - 1) /
                   static_cast<int32_t>(gridDim.x) * params.num_chunks;
#pragma unroll 1
  for (; stages > 0; --stages) {
    ptx::cp_async_wait<kDirectAhead - 1>();
    if constexpr (Traits::kFloat32) {
      round_positions<Traits>(params, s_source + ring.slot() * stage_bytes, thread);
    }
    announce(ring, thread);
    ring.advance();
    copy_next();
  }
}

// The loader warps.
template <typename Traits>
__device__ __forceinline__ void load_source(const Params& params, uint32_t s_source, uint32_t s_raw, int32_t* s_lists,
                                            uint32_t s_barriers) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x) - kConsumerThreads;
  if (params.walk == Walk::kChannels || params.walk == Walk::kChannelElements) {
    load_channels<Traits>(params, s_source, s_lists, s_barriers, thread);
  } else if (params.gather) {
    load_columns<Traits, true>(params, s_source, s_raw, s_lists, s_barriers, thread);
  } else {
    load_columns<Traits, false>(params, s_source, s_raw, s_lists, s_barriers, thread);
  }
}

// One thread: the weights in the order in which the consumers ask for them.
template <typename Traits>
__device__ __forceinline__ void load_weights(const Params& params, uint32_t s_weights, uint32_t s_barriers) {
  Ring ring(s_barriers, params.weight_slots);
  const int32_t slot_bytes = params.slot_taps * params.tap_bytes;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const char* g_phase =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step +
        params.packed_phase_begin[tile.phase_h];
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const char* g_chunk = g_phase + int64_t{chunk} * params.packed_chunk_step[tile.phase_h];
      for (int32_t phase = 0; phase < params.split_phases; ++phase) {
        const RunRange runs = runs_of(params, tile, phase);
        for (int32_t index = runs.begin; index < runs.end; ++index) {
          const TapRun& run = params.program.runs[index];
          const int32_t num_taps = run.num_h * run.num_w;
          for (int32_t tap = 0; tap < num_taps; tap += params.slot_taps) {
            const uint32_t bytes = min(params.slot_taps, num_taps - tap) * params.tap_bytes;
            ring.wait_empty();  // the consumers have multiplied what was here
            ptx::mbarrier_expect(ring.full(), bytes);
            ptx::bulk_copy(s_weights + ring.slot() * slot_bytes,
                           g_chunk + int64_t{run.first_tap + tap} * params.tap_bytes, bytes, ring.full());
            ring.advance();
          }
        }
      }
    }
  }
}

#endif

}  // namespace convt::wgmma_sm90a
