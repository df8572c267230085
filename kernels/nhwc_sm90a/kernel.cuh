// The NHWC engine: one persistent CTA an SM, two warpgroups that multiply and store, two threads that load. Every
// result is one sum in one warpgroup's accumulator, or one for each CTA of a cluster, in an order that does not depend
// on timing.
#pragma once

#include "nhwc_sm90a/epilogue.cuh"
#include "nhwc_sm90a/loader.cuh"
#include "nhwc_sm90a/split_mainloop.cuh"

namespace convt::nhwc_sm90a {

// Per thread. Those of the launch: 2 * 232 + 40 = 3 * 168.
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kLoaderRegisters = 40;

template <typename Shape>
__global__ void __launch_bounds__(kNhwcThreads, 1) convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  const int32_t slots = params.source_slots + params.weight_slots;
  const uint32_t s_sums_barrier = s_barriers + 16 * slots;
  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, 1);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kNhwcConsumers * 4);
    }
    ptx::mbarrier_init(s_sums_barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers exist
  const Share share = share_of_block<Shape>(params);
  const Stages stages = stages_of_part(params, share.rank);
  Ring sources(s_barriers, params.source_slots), weights(s_barriers + 16 * params.source_slots, params.weight_slots);
  // A value that the compiler knows to be the same for the whole warp.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (warp < 4 * kNhwcConsumers) {
    ptx::take_registers<kConsumerRegisters>();
    int32_t places[Shape::kBlocks];
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) places[block] = place_of_lane<Shape>(params, warp, block);
    const uint32_t s_staged = s_source + params.staged_begin, s_bias = s_source + params.bias_begin;
    uint32_t turn = 0;
    for (int32_t number = first_tile(params); number < params.num_tiles; number += gridDim.x / params.parts) {
      const float bias = bias_of_thread<Shape>(params, tile_of(params, number));
      Sums<Shape> sums;
      const int32_t window = first_window(params, tile_of(params, number));
      if constexpr (Shape::Traits::kSplit) {
        multiply_split_tile<Shape>(sums, params, window, stages, places, s_source, s_weights, &sources, &weights);
      } else if (params.boxes) {
        multiply_boxes<Shape>(sums, params, window, stages, warp, s_source, s_weights, &sources, &weights);
      } else {
        multiply_tile<Shape>(sums, params, window, stages, places, s_source, s_weights, &sources, &weights);
      }
      if (params.parts > 1) add_parts<Shape>(sums, params, share, s_source, s_sums_barrier);
      ptx::forget(number);  // what follows from it takes registers from the products
      if (params.staged) {
        stage_tile<Shape>(sums, params, tile_of(params, number), warp, bias, s_staged, s_bias, &turn);
      } else {
        store_tile<Shape>(sums, params, tile_of(params, number), share, warp);
      }
    }
    if (threadIdx.x == 0) ptx::bulk_wait_read();  // shared memory stays until then
  } else {
    ptx::give_registers<kLoaderRegisters>();
    if (warp <= 4 * kNhwcConsumers + 1 && ptx::elect_one()) {
      if (warp == 4 * kNhwcConsumers) {
        load_source<Shape>(params, stages, s_source, sources);
      } else {
        load_weights<Shape>(params, stages, s_weights, weights);
      }
    }
  }
#endif
}

}  // namespace convt::nhwc_sm90a
