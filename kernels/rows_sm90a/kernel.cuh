// Kernels of the rows engine: one persistent CTA per SM, with two consumer warpgroups. Each result is accumulated by
// one warpgroup or, in `strided`, by one per CTA or warpgroup that splits the tile, in an order that does not depend on
// timing. Outside the source, zeros are read.
#pragma once

#include "hopper/kernel.cuh"
#include "pipeline/copy_vector.cuh"
#include "ptx/tensor_copy.cuh"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/strided_epilogue.cuh"
#include "rows_sm90a/strided_mainloop.cuh"
#include "rows_sm90a/window_epilogue.cuh"
#include "rows_sm90a/window_mainloop.cuh"

// Consumers also store the results. One thread copies the source, or 96 threads copy it by elements if it is not
// aligned to 16 bytes. Another thread copies packed weights.
namespace convt::rows_sm90a::strided {

#ifdef CONVT_HAS_WGMMA

template <typename Shape>
__device__ __forceinline__ int32_t box_bytes(const Params& params) {
  return params.tile_images * params.box_rows * Shape::kStageChannels * params.pitch * Shape::kElement;
}

// Copies a stage of a source that is not aligned to 16 bytes, one element at a time.
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

// Copies the images of a stage, one bulk copy per image and channel. Images beyond the batch are neither copied nor
// read.
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
__device__ __forceinline__ void load_source(const Params& params, const Chunks& chunks, uint32_t s_source, Ring ring,
                                            int32_t thread) {
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const int32_t first_channel = tile.group * params.k_channels;
    int32_t at[4] = {tile.column * Shape::kStep - params.box_lead, first_channel + chunks.begin * Shape::kStageChannels,
                     params.whole_images ? 0 : source_row<Shape>(tile, tile.row), tile.image};
    for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk, at[1] += Shape::kStageChannels) {
      const uint32_t s_box = s_source + ring.slot() * params.stage_bytes;
      ring.wait_empty();  // the consumers have released the slot
      if constexpr (kByMap) {
        if (params.image_copies) {
          copy_images<Shape>(params, s_box, at, ring.full());
        } else {
          ptx::mbarrier_expect(ring.full(), box_bytes<Shape>(params));
          ptx::tensor_copy(s_box, &params.map, at, ring.full());
        }
      } else {
        copy_box<Shape>(params, s_box, at, first_channel + params.k_channels, thread);
        pipeline::producer_arrive<Shape::kElement>(ring);
      }
      ring.advance();
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, const Chunks& chunks, uint32_t s_weights,
                                             Ring ring) {
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const char* g_tile =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step;
    for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      for (int32_t slot = 0; slot < Shape::kStageSlots; ++slot) {
        const uint32_t s_slot = s_weights + ring.slot() * Shape::kSlotBytes;
        ring.wait_empty();  // the consumers have released the slot
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

template <StridedShape kShape>
struct Convolution : hopper::Slots<Params> {
  using Params = strided::Params;
  using Shape = strided::Shape<kShape>;
  // Registers: 2 * 232 + 40 = 3 * 168.
  static constexpr hopper::Roles kRoles{kShape.kThreads, 1, kStridedConsumers, 232, 40};

#ifdef CONVT_HAS_WGMMA
  const uint32_t s_zeros;
  ClusterSlice share;
  Chunks chunks;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : hopper::Slots<Params>(params, s_bytes), s_zeros(s_source + params.zeros_begin) {}

  __device__ __forceinline__ void init_barriers() const {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (thread < count()) {
      const bool many_load = thread < params.source_slots && !params.has_map;
      pipeline::init_slots(s_barriers, thread, thread + 1, many_load ? kStridedLoaders : 1,
                           Shape::kAlternate ? 4 : 4 * kStridedConsumers);
      ptx::fence_mbarrier_init();
    }
    if (thread < kStridedZeroBytes / 4) ptx::store_shared(s_zeros + 4 * thread, 0);
  }

  __device__ __forceinline__ void assign_work() {
    share = reduce::slice_of_block(params.splits, Shape::kN);
    chunks = chunks_of_split(params, share.rank);
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    Ring sources = this->sources(), weights = this->weights();
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
      Accumulators<Shape> acc;
      const Quad of_products = quad_of_thread<Shape>(params, tile_of(params, number));
      if constexpr (Shape::kSplit) {
        multiply_split_tile<Shape>(acc, params, of_products, chunks, s_source, s_weights, s_zeros, &sources, &weights);
      } else {
        multiply_tile<Shape>(acc, params, of_products, chunks, s_source, s_weights, s_zeros, &sources, &weights,
                             Shape::kAlternate ? warp / 4 : 0);
      }
      // If tiles are few, the warpgroups of a CTA or the CTAs of a cluster split one.
      constexpr int kPlanes = 2 * Shape::kPhases, kBlocks = Shape::kN / 8;
      const auto of_plane = [&](int plane) { return acc.r[plane / 2][plane % 2]; };
      ClusterSlice mine = share;
      if constexpr (Shape::kAlternate) {
        mine = {warp / 4, 31 - __clz(kBlocks / kStridedConsumers)};
        reduce::reduce_warpgroups<kStridedConsumers, kPlanes, kBlocks>(of_plane, mine, s_source);
      } else if (params.splits > 1) {
        reduce::reduce_scatter_dsmem<kConsumerThreads, kPlanes, kBlocks>(of_plane, params.splits, mine, s_source);
      }
      ptx::opaque(number);  // keeps the tile's coordinates out of registers during the products
      const Tile tile = tile_of(params, number);
      const Quad quad = quad_of_thread<Shape>(params, tile);
      if constexpr (Shape::kOutput) {
        if (params.steps.num_steps == 0) {
          store_output<Shape, false>(acc, params, tile, quad, mine);
        } else {
          store_output<Shape, true>(acc, params, tile, quad, mine);
        }
      } else {
        store_gradient<Shape>(acc, params, tile, quad, mine);
      }
      if constexpr (Shape::kAlternate) break;  // a CTA has at most one tile, so ring state need not be loop-carried
    }
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp == kStridedLoaders / 32) {
      ptx::wait_for_previous_kernel();  // only this role waits for the packing kernel, which starts after all others
      if (ptx::elect_one()) load_weights<Shape>(params, chunks, s_weights, weights());
    } else if (!params.has_map) {
      load_source<Shape, false>(params, chunks, s_source, sources(),
                                static_cast<int32_t>(threadIdx.x) - kConsumerThreads);
    } else if (warp == 0 && ptx::elect_one()) {
      load_source<Shape, true>(params, chunks, s_source, sources(), 0);
    }
  }
#endif
};

}  // namespace convt::rows_sm90a::strided

// Seven warps store a tile during the next tile's products. One thread loads.
namespace convt::rows_sm90a::window {

#ifdef CONVT_HAS_WGMMA

// Called by one thread. Per stage it issues one copy of weights and one per source class.
template <typename Shape>
__device__ __forceinline__ void load_tiles(const Params& params, uint32_t s_slots, Ring ring) {
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const char* g_weights =
        static_cast<const char*>(params.packed) +
        (int64_t{tile.group} * params.channel_tiles.value + tile.channel_tile) * params.packed_tile_step;
    const int32_t row_classes = 1 << params.row_classes_log2, channel_classes = 1 << params.channel_classes_log2;
    const int32_t row = tile.row + params.first_h;
    int32_t channel = tile.group * params.k_channels;
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      const uint32_t s_slot = s_slots + ring.slot() * params.slot_bytes;
      ring.wait_empty();  // the consumers have released the slot
      ptx::mbarrier_expect(ring.full(), params.source_bytes + Shape::kWeightBytes);
      uint32_t s_box = s_slot;
      for (int32_t i = row; i < row + row_classes; ++i) {
        const CUtensorMap* maps = params.source + ((i & row_classes - 1) << params.channel_classes_log2);
        const int32_t at[4] = {tile.column + params.first_w, channel >> params.channel_classes_log2,
                               i >> params.row_classes_log2, tile.image};
        for (int32_t d = 0; d < channel_classes; ++d, s_box += params.box_bytes) {
          ptx::tensor_copy(s_box, maps + d, at, ring.full());
        }
      }
      ptx::bulk_copy(s_slot + params.source_bytes, g_weights, Shape::kWeightBytes, ring.full());
      channel += Shape::kStageChannels;
      g_weights += Shape::kWeightBytes;
      ring.advance();
    }
  }
}

#endif

template <WindowShape kShape>
struct Convolution {
  using Params = window::Params;
  using Shape = window::Shape<kShape>;
  // Registers: 2 * 216 + 2 * 40 = 4 * 128.
  static constexpr hopper::Roles kRoles{kShape.kThreads, 1, kWindowWarps / 4, 216, 40};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const uint32_t s_slots, s_staged, s_barriers, s_staged_barriers;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : params(params),
        s_slots(ptx::shared_address(s_bytes)),
        s_staged(s_slots + params.staged_begin),
        s_barriers(s_slots + params.barriers_begin),
        s_staged_barriers(s_barriers + 16 * params.source_slots) {}

  __device__ __forceinline__ void init_barriers() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, params.source_slots, 1, kWindowWarps);
    // Every thread arrives after its own writes or reads of a warpgroup's staged results.
    pipeline::init_slots(s_staged_barriers, 0, 2, kWindowWarps / 2 * 32, kWindowStoreWarps * 32);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void assign_work() {}

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    if constexpr (kShape.reads_classes()) {
      if (params.row_classes_log2 + params.channel_classes_log2 > 0) return multiply_tiles<true>(warp);
    }
    multiply_tiles<false>(warp);
  }

  template <bool kShifted>
  __device__ __forceinline__ void multiply_tiles(int32_t warp) const {
    const int32_t consumer = warp / 4;
    Ring ring(s_barriers, params.source_slots);
    Source<Shape, kShifted> source(params, warp, s_slots);
    uint32_t parity = 0;
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
      Accumulators<Shape> acc;
      if constexpr (kShifted) source.begin(tile_of(params, number));
      if constexpr (Shape::kSplit) {
        multiply_split_tile(acc, params, source, s_slots, &ring);
      } else {
        multiply_tile(acc, params, source, s_slots, &ring);
      }
#pragma unroll
      for (int piece = 0; piece < Shape::kStagedPieces; ++piece, parity ^= 1) {
        ptx::mbarrier_wait(s_staged_barriers + 16 * consumer + 8, parity);  // the store warps have released the buffer
        const uint32_t s_mine = s_staged + consumer * Shape::kStagedBytes;
        if (params.steps.num_steps == 0) {
          stage_piece<Shape, false>(acc, piece, params, tile_of(params, number), warp, s_mine);
        } else {
          stage_piece<Shape, true>(acc, piece, params, tile_of(params, number), warp, s_mine);
        }
        ptx::mbarrier_arrive(s_staged_barriers + 16 * consumer);
      }
    }
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp > 0) {
      store_tiles<Shape>(params, warp - 1, s_staged, s_staged_barriers);
    } else if (ptx::elect_one()) {
      ptx::wait_for_previous_kernel();  // the packing kernel; consumers wait for their first stage
      load_tiles<Shape>(params, s_slots, Ring(s_barriers, params.source_slots));
    }
  }
#endif
};

}  // namespace convt::rows_sm90a::window
