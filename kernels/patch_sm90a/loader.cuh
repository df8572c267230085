// The patch engine's producers of the source: stages as it lies in memory. What does not exist is zero: a channel must
// add nothing to any sum.
#pragma once

#include "patch_sm90a/copy.cuh"
#include "patch_sm90a/gather.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// NCHW: rows of a stage are channels.
template <typename Shape, int kBytes>
__device__ __forceinline__ void load_planes(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                            int32_t thread) {
  using Element = typename Shape::Element;
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<kBytes, Shape::kStagePositions / kOfVector>;
  const int32_t row = Copy::row(thread), lane = Copy::lane(thread);
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of<Shape>(params, number);
    const Element* g_vector[Copy::kTerms];
    bool exists[Copy::kTerms];
#pragma unroll
    for (int part = 0; part < Copy::kTerms; ++part) {
      const int32_t position = tile.begin + (part * Copy::kLanes + lane) * kOfVector;
      exists[part] = position < params.positions;
      int32_t place;
      const int32_t image = params.by_image(exists[part] ? position : 0, &place);
      g_vector[part] = static_cast<const Element*>(params.source) + image * params.source_stride[0] + place +
                       (int64_t{tile.group} * params.k_channels + row) * params.source_stride[1];
    }
    int32_t left = params.k_channels - row;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, left -= Shape::kStageChannels) {
      const uint32_t s_row = s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes + lane * kBytes;
      ring.wait_empty();  // the consumers have read what was here
#pragma unroll 4
      for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
#pragma unroll
        for (int part = 0; part < Copy::kTerms; ++part) {
          const bool copy = exists[part] && step < left;
          const Element* g = g_vector[part] + (copy ? step * params.source_stride[1] : 0);
          copy_vector<kBytes>(s_row + step * Shape::kRowBytes + part * Copy::kLanes * kBytes, g, copy);
        }
      }
      announce<kBytes>(ring);
      ring.advance();
#pragma unroll
      for (int part = 0; part < Copy::kTerms; ++part) {
        g_vector[part] += Shape::kStageChannels * params.source_stride[1];
      }
    }
  }
}

// channels_last: rows of a stage are positions.
template <typename Shape, int kBytes>
__device__ __forceinline__ void load_channels(const Params& params, uint32_t s_source, uint32_t s_barriers,
                                              int32_t thread) {
  using Element = typename Shape::Element;
  constexpr int kOfVector = kBytes / Shape::kElement;
  using Copy = RowCopy<kBytes, 128 / kBytes>;
  const int32_t row = Copy::row(thread), channel = Copy::lane(thread) * kOfVector;
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of<Shape>(params, number);
    const int32_t rows = params.positions - tile.begin - row;
    const Element* g_row = static_cast<const Element*>(params.source) +
                           (int64_t{tile.begin} + row) * params.source_stride[3] +
                           int64_t{tile.group} * params.k_channels + channel;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_row += Shape::kStageChannels) {
      const uint32_t s_row =
          s_source + ring.slot() * Shape::kStageBytes + row * Shape::kRowBytes + channel * Shape::kElement;
      const int32_t left = params.k_channels - chunk * Shape::kStageChannels - channel;
      ring.wait_empty();
#pragma unroll 4
      for (int32_t step = 0; step < Shape::kStageRows - row; step += Copy::kStep) {
#pragma unroll
        for (int part = 0; part < Copy::kTerms; ++part) {
          const int32_t further = part * Copy::kLanes * kOfVector;  // channels
          const bool copy = further < left && step < rows;
          const Element* g =
              copy ? g_row + step * params.source_stride[3] + further : static_cast<const Element*>(params.source);
          copy_vector<kBytes>(s_row + step * Shape::kRowBytes + further * Shape::kElement, g, copy);
        }
      }
      announce<kBytes>(ring);
      ring.advance();
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, const Stages& stages, uint32_t s_source,
                                            uint32_t s_barriers, int32_t thread) {
  auto load_vectors = [&](auto bytes) {
    constexpr int kBytes = decltype(bytes)::value;
    if constexpr (kBytes < Shape::kElement) {
      return;
    } else if constexpr (Shape::kGathers) {
      gather_planes<Shape, kBytes>(params, stages, s_source, s_barriers, thread);
    } else if constexpr (Shape::kByChannels) {
      load_channels<Shape, kBytes>(params, s_source, s_barriers, thread);
    } else {
      load_planes<Shape, kBytes>(params, s_source, s_barriers, thread);
    }
  };
  if (params.source_vector == 16) {
    load_vectors(std::integral_constant<int, 16>());
  } else if (params.source_vector == 8) {
    load_vectors(std::integral_constant<int, 8>());
  } else if (params.source_vector == 4) {
    load_vectors(std::integral_constant<int, 4>());
  } else {
    load_vectors(std::integral_constant<int, 2>());
  }
}

#endif

}  // namespace convt::patch_sm90a
