// The strided engine's loaders: boxes of the source, by one thread with its tensor map or by many, what does not exist
// as zeros; and packed weights, by one thread.
#pragma once

#include "pipeline/copy_vector.cuh"
#include "ptx/tensor_copy.cuh"
#include "strided_sm90a/tile.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

template <typename Shape>
__device__ __forceinline__ int32_t box_bytes(const Params& params) {
  return params.tile_images * params.box_rows * Shape::kStageChannels * params.pitch * Shape::kElement;
}

// One element at a time: a source that does not begin on 16 bytes.
template <typename Shape>
__device__ __forceinline__ void copy_box(const Params& params, uint32_t s_box, const int32_t (&at)[4],
                                         int32_t last_channel, int32_t thread) {
  const int32_t elements = box_bytes<Shape>(params) / Shape::kElement;
  for (int32_t place = thread; place < elements; place += kStridedLoaders) {
    int32_t column = at[0] + place % params.pitch, rest = place / params.pitch;
    const int32_t channel = at[1] + rest % Shape::kStageChannels;
    rest /= Shape::kStageChannels;
    int32_t row = at[2] + rest % params.box_rows;
    const int32_t image = at[3] + rest / params.box_rows;
    if (params.whole_images) {
      row = column / params.source_w;
      column %= params.source_w;
    }
    const bool exists = column >= 0 && column < params.source_w && row >= 0 && row < params.source_h &&
                        channel < last_channel && image < params.batch;
    const auto* g = static_cast<const typename Shape::Element*>(params.source);
    if (exists) {
      g += image * params.source_stride[0] + channel * params.source_stride[1] + row * params.source_stride[2] + column;
    }
    pipeline::copy_vector<Shape::kElement>(s_box + place * Shape::kElement, g, exists);
  }
}

// Whole images that exist, each of a channel one copy: what lies beside them is never read.
template <typename Shape>
__device__ __forceinline__ void copy_images(const Params& params, uint32_t s_box, const int32_t (&at)[4],
                                            uint32_t barrier) {
  using Element = typename Shape::Element;
  const int32_t images = max(0, min(params.tile_images, params.batch - at[3]));
  const int32_t bytes = params.source_h * params.row_bytes;
  ptx::mbarrier_expect(barrier, images * Shape::kStageChannels * bytes);
  for (int32_t image = 0; image < images; ++image) {
    const Element* g = static_cast<const Element*>(params.source) + (at[3] + image) * params.source_stride[0] +
                       at[1] * params.source_stride[1];
    uint32_t s_image = s_box + image * params.image_bytes;
#pragma unroll 4
    for (int32_t channel = 0; channel < Shape::kStageChannels; ++channel) {
      ptx::bulk_copy(s_image, g, bytes, barrier);
      g += params.source_stride[1];
      s_image += params.channel_bytes;
    }
  }
}

template <typename Shape, bool kByMap>
__device__ __forceinline__ void load_source(const Params& params, const Chunks& chunks, uint32_t s_source,
                                            uint32_t s_barriers, int32_t thread) {
  Ring ring(s_barriers, params.source_slots);
  for (int32_t number = first_tile(params); number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const int32_t first_channel = tile.group * params.k_channels;
    int32_t at[4] = {tile.column * Shape::kStep - params.box_lead, first_channel + chunks.begin * Shape::kStageChannels,
                     params.whole_images ? 0 : source_row<Shape>(tile, tile.row), tile.image};
    for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk, at[1] += Shape::kStageChannels) {
      const uint32_t s_box = s_source + ring.slot() * params.stage_bytes;
      ring.wait_empty();  // the consumers have read what was here
      if constexpr (kByMap) {
        if (params.image_copies) {
          copy_images<Shape>(params, s_box, at, ring.full());
        } else {
          ptx::mbarrier_expect(ring.full(), box_bytes<Shape>(params));
          ptx::tensor_copy(s_box, &params.map, at, ring.full());
        }
      } else {
        copy_box<Shape>(params, s_box, at, first_channel + params.k_channels, thread);
        pipeline::announce<Shape::kElement>(ring);
      }
      ring.advance();
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, const Chunks& chunks, uint32_t s_weights,
                                             uint32_t s_barriers) {
  Ring ring(s_barriers, params.weight_slots);
  for (int32_t number = first_tile(params); number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const char* g_tile =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step;
    for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      for (int32_t slot = 0; slot < Shape::kStageSlots; ++slot) {
        const uint32_t s_slot = s_weights + ring.slot() * Shape::kSlotBytes;
        ring.wait_empty();  // the consumers have multiplied what was here
        ptx::mbarrier_expect(ring.full(), Shape::kSlotBytes);
        const WeightCopy* copies = params.copies + (tile.phase + slot) * params.num_copies;
        for (int32_t i = 0; i < params.num_copies; ++i) {
          const char* g = g_tile + copies[i].from + int64_t{chunk} * copies[i].step;
          ptx::bulk_copy(s_slot + copies[i].to, g, copies[i].bytes, ring.full());
        }
        ring.advance();
      }
    }
  }
}

#endif

}  // namespace convt::strided_sm90a
