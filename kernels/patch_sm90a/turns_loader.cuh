// The source for warpgroups that take turns: every loading warp has whole stages, the warps one after the other. What a
// warp waits for and finds out for a stage costs as much as several copies.
#pragma once

#include "patch_sm90a/copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// One warp: stages number `warp` and every kTurnsLoaderWarps further, of all tiles. There are as many slots, so that it
// is never two rounds ahead of a slot's barrier. Rows of a stage are channels; what does not exist is zero.
template <typename Shape, int kBytes>
__device__ __forceinline__ void load_stages(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                            int32_t warp) {
  using Element = typename Shape::Element;
  constexpr int kOfVector = kBytes / Shape::kElement, kVectors = Shape::kStagePositions / kOfVector;
  constexpr int kLanes = kVectors < 32 ? kVectors : 32, kTerms = kVectors / kLanes, kRows = 32 / kLanes;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % 32, row = thread / kLanes, lane = thread % kLanes;
  const uint32_t s_mine = s_source + row * Shape::kRowBytes + lane * kBytes;
  const int64_t step = kRows * params.source_stride[1];
  Ring ring(s_barriers, params.source_slots);
  ring.advance(warp);
  int32_t chunk = warp;
  for (int32_t number = first_tile(params); number < params.num_tiles; number += static_cast<int32_t>(gridDim.x)) {
    if (chunk < params.num_chunks) {
      const Tile tile = tile_of<Shape>(params, number);
      const int32_t begin = tile.begin & ~params.vector_mask;
      const Element* g_vector[kTerms];
      bool exists[kTerms];
#pragma unroll
      for (int part = 0; part < kTerms; ++part) {
        const int32_t position = begin + (part * kLanes + lane) * kOfVector;
        exists[part] = position < params.positions;
        int32_t place;
        const int32_t image = params.by_image(exists[part] ? position : 0, &place);
        g_vector[part] = static_cast<const Element*>(params.source) + image * params.source_stride[0] + place +
                         (int64_t{tile.group} * params.k_channels + row) * params.source_stride[1];
      }
      for (; chunk < params.num_chunks; chunk += kTurnsLoaderWarps) {
        const uint32_t s_row = s_mine + ring.slot() * Shape::kStageBytes;
        const int32_t first = chunk * Shape::kStageChannels, left = params.k_channels - first - row;
        ring.wait_empty();  // the consumers have read what was here
#pragma unroll
        for (int part = 0; part < kTerms; ++part) {
          const Element* g_stage = g_vector[part] + first * params.source_stride[1];
#pragma unroll 8
          for (int k = 0; k < Shape::kStageRows / kRows; ++k) {
            const bool copy = exists[part] && k * kRows < left;
            const Element* g = copy ? g_stage + k * step : static_cast<const Element*>(params.source);
            copy_vector<kBytes>(s_row + k * kRows * Shape::kRowBytes + part * kLanes * kBytes, g, copy);
          }
        }
        announce<kBytes>(ring);
        ring.advance(kTurnsLoaderWarps);
      }
    }
    chunk -= params.num_chunks;
  }
}

#endif

}  // namespace convt::patch_sm90a
