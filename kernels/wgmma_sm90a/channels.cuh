// The source where channels are neighbours in memory (channels_last): 16 bytes of a position are what an operand plane
// holds of it. They are copied there asynchronously; float32 is then rounded in place, by the thread that copied it.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"
#include "wgmma_sm90a/tile.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int kBatch = 4;  // units that a thread has in flight

// Where the tile's positions lie in the source, in elements from the tile's corner, or kOutside.
__device__ __forceinline__ void list_positions(const Params& params, const Tile& tile, int32_t* s_places,
                                               int32_t thread) {
  for (int32_t index = thread; index < params.num_places; index += kLoaderThreads) {
    const SourcePlace place = source_place(params, tile, index);
    s_places[index] = place.inside ? offset_from_corner(params, tile, place) : kOutside;
  }
}

// A thread's plane, its first position, and the distance to its next: neighbouring lanes take neighbouring planes.
struct PlaneWalk {
  int32_t plane, position, step;

  __device__ __forceinline__ PlaneWalk(const Params& params, int32_t thread) {
    const int32_t log2_planes = params.k_steps == 1 ? 1 : params.k_steps == 2 ? 2 : 3;
    plane = thread & ((1 << log2_planes) - 1);
    position = thread >> log2_planes;
    step = kLoaderThreads >> log2_planes;
  }
};

// Copies one stage of a tile into an operand slot.
template <typename Traits>
__device__ __forceinline__ void copy_positions(const Params& params, const Tile& tile, int32_t chunk,
                                               const int32_t* s_places, uint32_t s_stage, int32_t thread) {
  using Element = typename Traits::Element;
  const PlaneWalk walk(params, thread);
  const int32_t k = (chunk * 2 * params.k_steps + walk.plane) * Traits::kChannels;
  const int32_t existing = params.k_channels - k;
  const int64_t step = params.source_stride[1];
  const Element* g_corner = static_cast<const Element*>(params.source) + corner_of(params, tile) + k * step;
  const uint32_t s_plane = s_stage + walk.plane * params.plane_positions * 16;
  const int32_t positions = params.num_places;
  if (params.vectors) {
#pragma unroll 1
    for (int32_t position = walk.position; position < positions; position += kBatch * walk.step) {
      uint32_t s_unit[kBatch];
      const void* g_unit[kBatch];
      bool exists[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        // Behind the last position the last is copied again.
        const int32_t mine = position + i * walk.step < positions ? position + i * walk.step : position;
        const int32_t offset = s_places[mine];
        exists[i] = offset != kOutside && existing > 0;
        g_unit[i] = g_corner + offset;  // not read unless it exists
        s_unit[i] = s_plane + mine * 16;
      }
      ptx::cp_async_or_zero_4(s_unit, g_unit, exists);
    }
    return;
  }
  // No 16 bytes are aligned, or a vector would hold another group's channels.
#pragma unroll 1
  for (int32_t position = walk.position; position < params.num_places; position += walk.step) {
    const int32_t offset = s_places[position];
    Element r[Traits::kChannels];
#pragma unroll
    for (int32_t i = 0; i < Traits::kChannels; ++i) {
      r[i] = offset != kOutside && i < existing ? g_corner[offset + i * step] : to_element<Element>(0.0f);
    }
    uint32_t words[4];
    memcpy(words, r, 16);
    ptx::store_shared(s_plane + position * 16, words);
  }
}

// What this thread has copied, in place: rounded, or as a high and a low term.
template <typename Traits>
__device__ __forceinline__ void round_positions(const Params& params, uint32_t s_stage, int32_t thread) {
  const PlaneWalk walk(params, thread);
  const uint32_t s_plane = s_stage + walk.plane * params.plane_positions * 16;
  const int32_t positions = params.num_places;
#pragma unroll 1
  for (int32_t position = walk.position; position < positions; position += kBatch * walk.step) {
    uint32_t r[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (position + i * walk.step < positions) ptx::load_shared(r[i], s_plane + (position + i * walk.step) * 16);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (position + i * walk.step < positions) {
        store_float32<Traits>(params, s_plane + (position + i * walk.step) * 16, r[i]);
      }
    }
  }
}

// All stages of all tiles straight into operand slots; kDirectAhead stages are on their way.
template <typename Traits>
__device__ __forceinline__ void load_channels(const Params& params, uint32_t s_source, int32_t* s_places, Ring ring,
                                              int32_t thread) {
  const uint32_t stage_bytes = Traits::kTerms * 2 * params.k_steps * params.plane_positions * 16;
  Ring copy_ring = ring;
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

#endif

}  // namespace convt::wgmma_sm90a
