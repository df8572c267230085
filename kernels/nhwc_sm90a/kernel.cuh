// Kernel of the nhwc family: one or two persistent CTAs per SM. Two consumer warpgroups multiply and store. One
// producer thread copies boxes of the source, another the weights of each tap. Each result is accumulated by one
// warpgroup, or by one per CTA of a cluster or part of a tile, in an order that does not depend on timing.
#pragma once

#include "hopper/kernel.cuh"
#include "nhwc_sm90a/epilogue.cuh"
#include "nhwc_sm90a/gather.cuh"
#include "nhwc_sm90a/mainloop.cuh"
#include "nhwc_sm90a/rows.cuh"
#include "nhwc_sm90a/split_mainloop.cuh"
#include "reduce/stream_k.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename Shape>
__device__ __forceinline__ void load_source(const Params& params, const Stages& stages_of_tiles, uint32_t s_source,
                                            Ring sources) {
  for (UnitWalk units(params); units.exists(); units.advance()) {
    const auto [number, stages] = unit_of(params, stages_of_tiles, units.number());
    const Tile tile = tile_of(params, number);
    const int32_t column = tile.column * params.step_w, row = tile.row * params.step_h;
    StageWalk walk = stages.walk(first_window(params, tile));
    for (int32_t stage = stages.begin; stage < stages.end; ++stage, walk.advance(params)) {
      const Window& window = params.windows[walk.window];
      if (window.num_h > 0) {
        const int32_t at[5] = {walk.chunk * Shape::kStageChannels, tile.group, column + window.column, row + window.row,
                               tile.image * params.step_n + window.plane};
        sources.wait_empty();  // the consumers have released the slot
        ptx::mbarrier_expect(sources.full(), params.box_bytes);
        ptx::tensor_copy(s_source + sources.slot() * params.stage_bytes, &params.map, at, sources.full());
        sources.advance();
      }
    }
  }
}

// Copies the weights of a tap for a stage from the unpacked weight.
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
__device__ __forceinline__ void load_weights(const Params& params, const Stages& stages_of_tiles, uint32_t s_weights,
                                             Ring weights) {
  ptx::wait_for_previous_kernel();  // only this role waits for the packing kernel, which starts after all others
  for (UnitWalk units(params); units.exists(); units.advance()) {
    const auto [number, stages] = unit_of(params, stages_of_tiles, units.number());
    const Tile tile = tile_of(params, number);
    const char* g_tile = static_cast<const char*>(params.packed) + tile.weights * params.packed_tile_step;
    StageWalk walk = stages.walk(first_window(params, tile));
    for (int32_t stage = stages.begin; stage < stages.end; ++stage, walk.advance(params)) {
      const Window& window = params.windows[walk.window];
      const char* g = g_tile + window.packed + int64_t{walk.chunk} * window.packed_step;
      int32_t tap = window.tap, column = 0;
      for (int32_t taps = window.num_h * window.num_w; taps > 0; taps -= params.slot_taps) {
        const int32_t count = min(taps, params.slot_taps);
        uint32_t s_tap = s_weights + weights.slot() * params.slot_taps * Shape::kTapBytes;
        weights.wait_empty();  // the consumers have released the slot
        ptx::mbarrier_expect(weights.full(), count * Shape::kTapBytes);
        if (params.packed != nullptr) {
          ptx::bulk_copy(s_tap, g, count * Shape::kTapBytes, weights.full());
          g += count * Shape::kTapBytes;
        } else {
          for (int32_t i = 0; i < count; ++i, s_tap += Shape::kTapBytes) {
            load_direct<Shape>(params, s_tap, walk.chunk * Shape::kStageChannels, tile.channel_tile * Shape::kN, tap,
                               weights.full());
            tap += window.tap_column_step;
            if (++column == window.num_w) {
              column = 0;
              tap += window.tap_row_step - window.num_w * window.tap_column_step;
            }
          }
        }
        weights.advance();
      }
    }
  }
}

#endif

template <typename Shape>
struct Convolution : hopper::Slots<Params> {
  using Params = nhwc_sm90a::Params;
  // Registers: 2 * 232 + 40 = 3 * 168. With two CTAs per SM: 2 * 96 + 40 <= 3 * 80.
  static constexpr hopper::Roles kRoles{kNhwcThreads, Shape::kCtas, kNhwcConsumers, Shape::kCtas == 1 ? 232 : 96, 40};

  // Whether the tile's coordinates are recomputed after its products, so that they do not occupy registers meanwhile.
  static constexpr bool kMakesOpaque = Shape::kBlocks * Shape::kN > 64;

#ifdef CONVT_HAS_WGMMA
  const uint32_t s_shares_barrier;
  ClusterSlice share;
  Stages stages_of_tiles;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : hopper::Slots<Params>(params, s_bytes), s_shares_barrier(s_barriers + 16 * count()) {}

  __device__ __forceinline__ void init_barriers() const {
    if (threadIdx.x > 0) return;
    const int32_t of_source = params.source_slots;
    pipeline::init_slots(s_barriers, 0, of_source, params.gathers ? kNhwcGatheringThreads : 1, kNhwcConsumers * 4);
    pipeline::init_slots(s_barriers, of_source, count(), 1, kNhwcConsumers * 4);
    ptx::mbarrier_init(s_shares_barrier, 1);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void assign_work() {
    share = reduce::slice_of_block(params.splits, Shape::kN);
    stages_of_tiles = nhwc_sm90a::stages_of_tiles(params, share.rank);
  }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    Ring sources = this->sources(), weights = this->weights();
    int32_t places[Shape::kBlocks];
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) places[block] = place_of_lane<Shape>(params, warp, block);
    uint32_t buffer = 0;
    for (UnitWalk units(params); units.exists(); units.advance()) {
      auto [number, stages] = unit_of(params, stages_of_tiles, units.number());
      const Tile own = tile_of(params, number);
      const float bias = bias_of_thread<Shape>(params, own);
      Accumulators<Shape> acc;
      const int32_t window = first_window(params, own);
      if constexpr (Shape::Traits::kSplit) {
        multiply_split_tile<Shape>(acc, params, window, stages, places, s_source, s_weights, &sources, &weights);
      } else if (nhwc_reads_boxes_alone(Shape::kSteps) || params.group_bytes > 0) {
        // With two CTAs per SM the other CTA hides waits, and the second loop would need more registers.
        if (Shape::kCtas == 1 && params.one_tap) {
          multiply_boxes<Shape>(acc, params, window, stages, warp, s_source, s_weights, &sources, &weights);
        } else {
          multiply_taps_of_boxes<Shape>(acc, params, window, stages, warp, s_source, s_weights, &sources, &weights);
        }
      } else if constexpr (!nhwc_reads_boxes_alone(Shape::kSteps)) {
        multiply_tile<Shape>(acc, params, window, stages, places, s_source, s_weights, &sources, &weights);
      }
      if constexpr (nhwc_shares_tiles(Shape::kCtas)) {
        if (params.splits > 1) add_splits(acc);
      }
      if constexpr (kMakesOpaque) ptx::opaque(number);
      if constexpr (nhwc_shares_tiles(Shape::kCtas)) {
        if (is_part(params, units.number()) && !stream_k_fixup(acc, units.number())) continue;
      }
      const Tile tile = kMakesOpaque ? tile_of(params, number) : own;
      if (params.steps.num_steps == 0) {
        put<false>(acc, tile, warp, bias, &buffer);
      } else {
        put<true>(acc, tile, warp, bias, &buffer);
      }
    }
    if (threadIdx.x == 0) ptx::bulk_wait_read();  // shared memory must stay valid until the stores have read it
  }

  template <bool kSteps>
  __device__ __forceinline__ void put(const Accumulators<Shape>& acc, const Tile& tile, int32_t warp, float bias,
                                      uint32_t* buffer) const {
    if (params.rows) {
      put_rows<Shape, kSteps>(acc, params, tile, warp, bias, s_source + params.staged_begin,
                              s_source + params.bias_begin);
    } else if (params.staged) {
      const uint32_t s_staged = s_source + params.staged_begin, s_bias = s_source + params.bias_begin;
      stage_tile<Shape, kSteps>(acc, params, tile, warp, bias, s_staged, s_bias, buffer);
    } else {
      store_tile<Shape, kSteps>(acc, params, tile, share, warp);
    }
  }

  // In a short last wave, several CTAs multiply a part of each tile. The last CTA to arrive stores it.
  __device__ __forceinline__ bool stream_k_fixup(Accumulators<Shape>& acc, int32_t number) const {
    int32_t part;
    const int32_t divided = params.k_splits(number - params.whole_tiles, &part);
    char* sums = params.sums + int64_t{divided} * params.k_splits.value * nhwc_sum_bytes(Shape::kBlocks, Shape::kN);
    return reduce::stream_k_fixup<kConsumerThreads, Shape::kBlocks, Shape::kN / 8>(
        [&](int block) { return acc.r[block]; }, part, params.k_splits.value, sums, params.arrived + divided,
        s_shares_barrier + 8);
  }

  // If tiles are few, the CTAs of a cluster share one tile, which is their only tile.
  __device__ __forceinline__ void add_splits(Accumulators<Shape>& acc) const {
    if (threadIdx.x == 0) {
      const uint32_t bytes = reduce::bytes_of_slice<kConsumerThreads, Shape::kBlocks>(share);
      ptx::mbarrier_expect(s_shares_barrier, (params.splits - 1) * bytes);
    }
    ptx::cluster_barrier();  // all CTAs have finished their products
    reduce::reduce_scatter_dsmem_async<kConsumerThreads, Shape::kBlocks, Shape::kN / 8>(
        [&](int block) { return acc.r[block]; }, params.splits, share, s_source, s_shares_barrier);
  }

  // elect.sync tells the compiler that all values of a copying thread are warp-uniform. Otherwise the addresses of a
  // copy cost more than a stage's products.
  __device__ __forceinline__ void run_producer(int32_t warp) const {
    if (warp == 1) {
      if (ptx::elect_one()) load_weights<Shape>(params, stages_of_tiles, s_weights, weights());
    } else if (!params.gathers) {
      if (warp == 0 && ptx::elect_one()) load_source<Shape>(params, stages_of_tiles, s_source, sources());
    } else if constexpr (nhwc_can_gather(Shape::kSteps, Shape::kElement)) {
      gather_source<Shape>(params, stages_of_tiles, s_source, sources(), warp == 0 ? 0 : warp - 1);
    }
  }
#endif
};

}  // namespace convt::nhwc_sm90a
