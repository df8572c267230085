// The scatter engine: layers with few output channels, whose source is read once for all taps. One warpgroup
// multiplies source rows by the weights of all taps; what they add to result rows below each other meets in
// accumulators, what they add to results beside each other in shared memory. Called by launch/. Must not know: torch,
// how the plan was chosen.
#pragma once

#include "scatter_sm90a/epilogue.cuh"
#include "scatter_sm90a/loader.cuh"
#include "scatter_sm90a/pixels.cuh"
#include "scatter_sm90a/split.cuh"

namespace convt::scatter_sm90a {

// Of a thread, of two CTAs an SM, where sums are kept twice.
inline constexpr int kConsumerRegisters = 168, kOtherRegisters = 88;

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) scatter(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_begin = ptx::shared_address(s_bytes), s_barriers = s_begin + params.barriers_begin;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
  if (warp == Shape::kWorkThreads / 32) {
    if (lane == 0) {
#pragma unroll 1
      for (int32_t i = 0; i < params.stages; ++i) {
        ptx::mbarrier_init(s_barriers + 16 * i, 1);
        ptx::mbarrier_init(s_barriers + 16 * i + 8, kConsumerThreads / 32);
      }
#pragma unroll 1
      for (int32_t i = params.stages; i < params.stages + 2; ++i) {
        ptx::mbarrier_init(s_barriers + 16 * i, kConsumerThreads);
        ptx::mbarrier_init(s_barriers + 16 * i + 8, Shape::kStoreThreads);
      }
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::named_arrive(1, Shape::kThreads);
    ptx::named_arrive(4, Shape::kStoreThreads + 32);
    if constexpr (Shape::kSplit) ptx::give_registers<kOtherRegisters>();
    if (ptx::elect_one()) load_tiles<Shape>(params, s_begin, s_barriers);
    return;
  }
  const bool stores = warp >= kConsumerThreads / 32;
  if (!stores || params.weight_threads > kConsumerThreads) load_weights<Shape>(params, s_bytes + params.weights_begin);
  if (!Shape::kChannelsLast && params.strips == 1) clear_stages<Shape>(params, s_bytes);
  ptx::fence_proxy_async();
  Ring staged_ring(s_barriers + 16 * params.stages, 2);
  if (stores) {
    ptx::named_arrive(1, Shape::kThreads);
    make_tables<Shape>(params, s_bytes);
    ptx::named_barrier(4, Shape::kStoreThreads + 32);  // the tables are complete, the barriers exist
    if constexpr (Shape::kSplit) ptx::give_registers<kOtherRegisters>();
    if constexpr (Shape::kChannelsLast) {
      store_pixel_tiles<Shape>(params, s_bytes, staged_ring);
    } else {
      store_tiles<Shape>(params, s_bytes, staged_ring);
    }
    return;
  }
  ptx::named_barrier(1, Shape::kThreads);  // the weights are complete, the barriers exist

  if constexpr (Shape::kSplit) ptx::take_registers<kConsumerRegisters>();
  const auto weights = ptx::MatrixDescriptor::of(s_begin + params.weights_begin, 16 * Shape::kN, 128);
  const uint32_t channel_bytes = params.pitch * Shape::kElement;
  const uint32_t s_warp = s_begin + place_of_lane<Shape>(params, warp, lane);
  Ring ring(s_barriers, params.stages);
#pragma unroll 1
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const uint32_t s_mine = s_warp + (Shape::kChannelsLast ? 0 : tile.source_column % Shape::kVector * Shape::kElement);
    Accumulators<Shape> sums;
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) sums[i] = 0;
#pragma unroll 1
    for (int32_t row = first_source_row(params, tile); row < tile.end_row; ++row) {
      if (is_source_row(params, row)) {
        if constexpr (Shape::kSplit) {
          multiply_split_row<Shape>(sums, params, s_mine, channel_bytes, weights, &ring);
        } else if constexpr (Shape::kChannelsLast) {
          multiply_pixel_row<Shape>(sums, params, s_begin, weights, &ring);
        } else {
          multiply_row<Shape>(sums, params, s_mine, channel_bytes, weights, &ring);
        }
      }
      if (row >= tile.row) {
        staged_ring.wait_empty();  // what was here has been stored
        stage_slot<Shape>(sums, params, s_begin + params.staged_begin + staged_ring.slot() * params.staged_bytes);
        ptx::mbarrier_arrive(staged_ring.full());
        staged_ring.advance();
      }
      move_slots<Shape>(sums, params);
    }
  }
#endif
}

}  // namespace convt::scatter_sm90a
