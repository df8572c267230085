// The wgmma engine: persistent CTAs, each a pipeline of loaders, products and stores.
// Every result is one sum in one warpgroup's accumulator, in the order stages, runs, taps; nothing depends on timing.
#pragma once

#include "wgmma_sm90a/epilogue.cuh"
#include "wgmma_sm90a/loader.cuh"
#include "wgmma_sm90a/mainloop.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

// kPhases W phases of kBlocks blocks: all tiles of this CTA.
template <typename Traits, int kPhases, int kBlocks>
__device__ __forceinline__ void consume(const Params& params, uint32_t s_source, uint32_t s_weights,
                                        uint32_t s_barriers, float* s_staged) {
  Ring sources(s_barriers, params.source_slots);
  Ring weights(s_barriers + 16 * params.source_slots, params.weight_slots);
  const bool channels_last = params.result_stride[1] == 1 && params.result_stride[3] != 1;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    Accumulators<Traits> sums;
    sums.clear();
    multiply_tile<Traits, kPhases, kBlocks>(sums, params, tile, s_source, s_weights, &sources, &weights);
    if (channels_last) {
      store_channels_last<Traits, kPhases, kBlocks>(sums, params, tile);
    } else {
      if (params.column_pairs) {
        store_staged<Traits, kPhases, kBlocks, 2>(sums, params, tile, s_staged);
      } else {
        store_staged<Traits, kPhases, kBlocks, 1>(sums, params, tile, s_staged);
      }
    }
  }
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_raw = s_source + params.raw_begin;
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  auto* s_lists = reinterpret_cast<int32_t*>(s_bytes + params.lists_begin);
  auto* s_staged = reinterpret_cast<float*>(s_bytes + params.staged_begin);

  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < params.source_slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, kLoaderWarps);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kConsumerThreads / 32);
    }
    for (int32_t slot = params.source_slots; slot < params.source_slots + params.weight_slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, 1);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kConsumerThreads / 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers exist

  if (threadIdx.x < kConsumerThreads) {
    ptx::take_registers<kConsumerRegisters>();
    // All accumulators or half of them, shared by 1, 2 or 4 W phases.
    const bool half = params.split_phases * params.num_blocks < Traits::kAccumulators;
    auto consume_phases = [&](auto phases) {
      constexpr int kPhases = decltype(phases)::value;
      if constexpr (kPhases <= Traits::kAccumulators) {
        if (!half)
          return consume<Traits, kPhases, Traits::kAccumulators / kPhases>(params, s_source, s_weights, s_barriers, s_staged);
      }
      if constexpr (2 * kPhases <= Traits::kAccumulators) {
        consume<Traits, kPhases, Traits::kAccumulators / kPhases / 2>(params, s_source, s_weights, s_barriers, s_staged);
      }
    };
    if (params.split_phases == 1) {
      consume_phases(std::integral_constant<int, 1>());
    } else if (params.split_phases == 2) {
      consume_phases(std::integral_constant<int, 2>());
    } else {
      consume_phases(std::integral_constant<int, 4>());
    }
  } else {
    ptx::give_registers<kLoaderRegisters>();
    // A value that the compiler knows to be the same for the whole warp.
    const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0) - kConsumerThreads / 32;
    if (warp < kLoaderWarps) {
      load_source<Traits>(params, s_source, s_raw, s_lists, s_barriers);
    } else if (ptx::elect_one()) {
      load_weights<Traits>(params, s_weights, s_barriers + 16 * params.source_slots);
    }
  }
#endif
}

}  // namespace convt::wgmma_sm90a
