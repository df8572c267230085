// The strided engine: one persistent CTA an SM, two warpgroups that multiply and store, one that loads. Every result is
// one sum in one warpgroup's accumulator, or one for each CTA of a cluster, in an order that does not depend on timing.
#pragma once

#include "strided_sm90a/epilogue.cuh"
#include "strided_sm90a/loader.cuh"
#include "strided_sm90a/mainloop.cuh"
#include "strided_sm90a/split.cuh"

namespace convt::strided_sm90a {

// Per thread. Those of the launch: 2 * 232 + 40 = 3 * 168.
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kLoaderRegisters = 40;

template <typename Shape>
__global__ void __launch_bounds__(kStridedThreads, 1) convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_zeros = s_source + params.zeros_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  const uint32_t s_weight_barriers = s_barriers + 16 * params.source_slots;
  if (threadIdx.x < params.source_slots + params.weight_slots) {
    const uint32_t s_slot = s_barriers + 16 * threadIdx.x;
    const bool of_source = threadIdx.x < params.source_slots;
    const int32_t warps = Shape::kAlternate ? 4 : 4 * kStridedConsumers;
    ptx::mbarrier_init(s_slot, of_source && !params.has_map ? kStridedLoaders : 1);
    ptx::mbarrier_init(s_slot + 8, warps);
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x < kStridedZeroBytes / 4) ptx::store_shared(s_zeros + 4 * threadIdx.x, 0);
  __syncthreads();  // the barriers exist
  const Chunks chunks = chunks_of_split(params, share_of_block<Shape>(params).rank);

  // A value that the compiler knows to be the same for the whole warp.
  const int32_t warpgroup = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 128, 0);
  if (warpgroup < kStridedConsumers) {
    ptx::take_registers<kConsumerRegisters>();
    Ring sources(s_barriers, params.source_slots), weights(s_weight_barriers, params.weight_slots);
    for (int32_t number = first_tile(params); number < params.num_tiles; number += gridDim.x) {
      Accumulators<Shape> sums;
      const Quad of_products = quad_of_thread<Shape>(params, tile_of(params, number));
      if constexpr (Shape::kSplit) {
        multiply_split_tile<Shape>(sums, params, of_products, chunks, s_source, s_weights, s_zeros, &sources, &weights);
      } else {
        multiply_tile<Shape>(sums, params, of_products, chunks, s_source, s_weights, s_zeros, &sources, &weights,
                             Shape::kAlternate ? warpgroup : 0);
      }
      const Share share = Shape::kAlternate ? share_of_warpgroup<Shape>(warpgroup) : share_of_block<Shape>(params);
      if constexpr (Shape::kAlternate) {
        add_warpgroups<Shape>(sums, share, s_source);
      } else if (params.splits > 1) {
        reduce_cluster<Shape>(sums, params, share, s_source);
      }
      ptx::forget(number);  // what follows from it takes registers from the products
      const Tile tile = tile_of(params, number);
      const Quad quad = quad_of_thread<Shape>(params, tile);
      if constexpr (Shape::kOutput) {
        store_output<Shape>(sums, params, tile, quad, share);
      } else {
        store_gradient<Shape>(sums, params, tile, quad, share);
      }
      if constexpr (Shape::kAlternate) break;  // there are no more tiles than CTAs, and the compiler keeps rings apart
    }
  } else {
    ptx::give_registers<kLoaderRegisters>();
    // A value that the compiler knows to be the same for the whole warp.
    const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0) - kConsumerThreads / 32;
    if (warp == kStridedLoaders / 32) {
      ptx::wait_for_previous_kernel();  // which packs; everything before it is done since it began
      if (ptx::elect_one()) load_weights<Shape>(params, chunks, s_weights, s_weight_barriers);
    } else if (!params.has_map) {
      load_source<Shape, false>(params, chunks, s_source, s_barriers,
                                static_cast<int32_t>(threadIdx.x) - kConsumerThreads);
    } else if (warp == 0 && ptx::elect_one()) {
      load_source<Shape, true>(params, chunks, s_source, s_barriers, 0);
    }
  }
#endif
}

}  // namespace convt::strided_sm90a
