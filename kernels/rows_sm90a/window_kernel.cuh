// The window engine: one persistent CTA an SM, two warpgroups that multiply, one thread that loads, seven warps that
// store a tile while the next one is multiplied. Every result is one sum in one warpgroup's accumulator, in an order
// that does not depend on timing.
#pragma once

#include "hopper/instance.cuh"
#include "hopper/kernel.cuh"
#include "ptx/tensor_copy.cuh"
#include "rows_sm90a/instances.h"
#include "rows_sm90a/window_epilogue.cuh"
#include "rows_sm90a/window_mainloop.cuh"

namespace convt::rows_sm90a::window {

#ifdef CONVT_HAS_WGMMA

// By one thread: a copy for a stage's weights and one for each class of its source.
template <typename Shape>
__device__ __forceinline__ void load_tiles(const Params& params, uint32_t s_slots, Ring ring) {
  constexpr int kChannels = window_channels(Shape::kElement);
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
      ring.wait_empty();  // the consumers have multiplied what was here
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
      channel += kChannels;
      g_weights += Shape::kWeightBytes;
      ring.advance();
    }
  }
}

#endif

template <typename Shape>
struct Convolution {
  using Params = rows_sm90a::window::Params;
  // Registers: 2 * 216 + 2 * 40 = 4 * 128.
  static constexpr hopper::Roles kRoles{kWindowThreads, 1, kWindowWarps / 4, 216, 40};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const uint32_t s_slots, s_staged, s_barriers, s_staged_barriers;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : params(params),
        s_slots(ptx::shared_address(s_bytes)),
        s_staged(s_slots + params.staged_begin),
        s_barriers(s_slots + params.barriers_begin),
        s_staged_barriers(s_barriers + 16 * params.slots) {}

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, params.slots, 1, kWindowWarps);
    // Every thread says for itself what it has written and read of a warpgroup's results.
    pipeline::init_slots(s_staged_barriers, 0, 2, kWindowWarps / 2 * 32, kWindowStoreWarps * 32);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void take_part() {}

  __device__ __forceinline__ void consume(int32_t warp) const {
    if constexpr (Shape::kShifts) {
      if (params.row_classes_log2 + params.channel_classes_log2 > 0) return multiply_tiles<true>(warp);
    }
    multiply_tiles<false>(warp);
  }

  template <bool kShifted>
  __device__ __forceinline__ void multiply_tiles(int32_t warp) const {
    const int32_t consumer = warp / 4;
    Ring ring(s_barriers, params.slots);
    Source<Shape, kShifted> source(params, warp, s_slots);
    uint32_t parity = 0;
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
      Accumulators<Shape> acc;
      if constexpr (kShifted) source.begin(tile_of(params, number));
      if constexpr (Shape::Traits::kSplit) {
        multiply_split_tile(acc, params, source, s_slots, &ring);
      } else {
        multiply_tile(acc, params, source, s_slots, &ring);
      }
#pragma unroll
      for (int piece = 0; piece < Shape::kStagedPieces; ++piece, parity ^= 1) {
        ptx::mbarrier_wait(s_staged_barriers + 16 * consumer + 8, parity);  // what was here has been stored
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

  __device__ __forceinline__ void serve(int32_t warp) const {
    if (warp > 0) {
      store_tiles<Shape>(params, warp - 1, s_staged, s_staged_barriers);
    } else if (ptx::elect_one()) {
      ptx::wait_for_previous_kernel();  // which packs; consumers touch nothing before their first stage is here
      load_tiles<Shape>(params, s_slots, Ring(s_barriers, params.slots));
    }
  }
#endif
};

}  // namespace convt::rows_sm90a::window

#define CONVT_WINDOW_INSTANCE(symbol, dtype, precision, block_n, kernel_w) \
  CONVT_DEFINE_CONVOLUTION(rows_sm90a::window, symbol, dtype, precision, block_n, Shape<Traits, kernel_w>)
