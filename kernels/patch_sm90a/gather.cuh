// The source of the patch engine's gathering kernels, grad_output in NCHW: every position reads its patch of 2 x 2.
#pragma once

#include "patch_sm90a/copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Where a position's patch begins in the source's first channel, in elements.
__device__ __forceinline__ int64_t source_patch(const Params& params, int32_t position) {
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  const int32_t row = params.by_row(place, &column);
  return image * params.source_stride[0] + 2 * row * params.source_stride[2] + 2 * column;
}

// Rows of a stage are both rows of the patches of one channel, then of the next.
template <typename Shape, int kBytes>
__device__ __forceinline__ void gather_planes(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                              int32_t thread) {
  using Element = typename Shape::Element;
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<kBytes, 2 * Shape::kStagePositions / kOfVector>;
  constexpr int kChannels = Shape::kStageRows / 2;
  const int32_t row = Copy::row(thread), lane = Copy::lane(thread);
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of<Shape>(params, number);
    const Element* g_group =
        static_cast<const Element*>(params.source) + int64_t{tile.group} * params.k_channels * params.source_stride[1];
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const uint32_t s_row = s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes + lane * kBytes;
      ring.wait_empty();  // the consumers have read what was here
#pragma unroll
      for (int part = 0; part < Copy::kParts; ++part) {
        // Found again for every stage: kept for all parts, these would not fit into registers.
        const int32_t element = (part * Copy::kLanes + lane) * kOfVector, position = tile.begin + element / 2;
        const bool exists = position < params.positions;
        const Element* g_vector = exists ? g_group + source_patch(params, position) + element % 2 : g_group;
#pragma unroll 4
        for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
          const int32_t channel = chunk * kChannels + (row + step) / 2;
          const bool copy = exists && channel < params.k_channels;
          const int64_t offset = channel * params.source_stride[1] + (row + step) % 2 * params.source_stride[2];
          copy_vector<kBytes>(s_row + step * Shape::kRowBytes + part * Copy::kLanes * kBytes,
                              g_vector + (copy ? offset : 0), copy);
        }
      }
      announce<kBytes>(ring);
      ring.advance();
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
