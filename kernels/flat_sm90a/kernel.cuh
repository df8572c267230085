// The flat engine: persistent CTAs, one or two an SM, one or two warpgroups that multiply and store, two threads that
// load. Every result is one sum in one warpgroup's accumulator, in an order that does not depend on timing.
#pragma once

#include "flat_sm90a/epilogue.cuh"
#include "flat_sm90a/mainloop.cuh"
#include "ptx/shared.cuh"

namespace convt::flat_sm90a {

// Per thread. With a loading warpgroup's these are those of the launch: 216 + 40 = 2 * 128, 2 * 232 + 40 = 3 * 168.
inline constexpr int kLoaderRegisters = 40;
inline constexpr int consumer_registers(int consumers) { return consumers == 1 ? 216 : 232; }

#ifdef CONVT_HAS_WGMMA

template <typename Shape>
__device__ __forceinline__ void consume(const Params& params, uint32_t s_source, uint32_t s_weights,
                                        uint32_t s_barriers, float* s_staged) {
  Ring sources(s_barriers, params.source_slots);
  Ring weights(s_barriers + 16 * params.source_slots, params.weight_slots);
  const int32_t consumer = consumer_of_thread<Shape>();
  float* s_mine = s_staged + consumer * kFlatStagedFloats;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    Accumulators<Shape> sums;
    multiply_tile<Shape>(sums, params, tile, s_source, s_weights, &sources, &weights);
    const int32_t channel_tile =
        params.split_channels ? tile.block_tile * Shape::kConsumers + consumer : tile.block_tile;
    const int32_t first_position = tile.begin + (params.split_channels ? 0 : consumer * Shape::kPositions);
    if (params.channels_last) {
      store_channels<Shape>(sums, params, tile, channel_tile * kFlatChannels, first_position, s_mine);
    } else {
      store_columns<Shape>(sums, params, tile, channel_tile * kFlatChannels, first_position, s_mine);
    }
  }
}

#endif

template <typename Shape>
__global__ void __launch_bounds__(flat_threads(Shape::kConsumers), 3 - Shape::kConsumers)
    convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  constexpr int kConsumers = Shape::kConsumers;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  const uint32_t s_weight_barriers = s_barriers + 16 * params.source_slots;
  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < params.source_slots + params.weight_slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, 1);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kConsumers * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers exist

  if (threadIdx.x < kConsumers * 128) {
    ptx::take_registers<consumer_registers(kConsumers)>();
    consume<Shape>(params, s_source, s_weights, s_barriers, reinterpret_cast<float*>(s_bytes + params.staged_begin));
  } else {
    ptx::give_registers<kLoaderRegisters>();
    ptx::wait_for_previous_kernel();  // which packs; consumers read nothing of it before a stage is here
    // Two warps: lanes of one would take turns at everything they do. The compiler knows the number to be the same for
    // each of them.
    const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0) - kConsumers * 4;
    if (warp <= 1 && ptx::elect_one()) {
      if (warp == 0) {
        load_source<Shape>(params, s_source, s_barriers);
      } else {
        load_weights<Shape>(params, s_weights, s_weight_barriers);
      }
    }
  }
#endif
}

}  // namespace convt::flat_sm90a
