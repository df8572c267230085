// The wgmma engine: two persistent CTAs an SM, each a pipeline of loaders, products and stores. They know nothing of
// each other: while one stores its results, the other has the tensor cores for itself. Every result is one sum in one
// warpgroup's accumulator, in the order of stages, runs, taps; nothing depends on timing.
//
// An operand slot is planes of [position][16 bytes]: 4 TF32 or 8 half-precision channels of every position of the
// tile's windows. Where channels are neighbours in memory they are copied there as they are (channels.cuh); otherwise
// rows are copied as they are into raw slots, and from there converted (columns.cuh). What lies outside the source is
// zero, so that a product with it adds nothing.
#pragma once

#include <type_traits>

#include "hopper/instance.cuh"
#include "hopper/kernel.cuh"
#include "hopper/packed_taps.cuh"
#include "hopper/slots.cuh"
#include "wgmma_sm90a/channels.cuh"
#include "wgmma_sm90a/columns.cuh"
#include "wgmma_sm90a/epilogue.cuh"
#include "wgmma_sm90a/mainloop.cuh"

namespace convt::wgmma_sm90a {

template <typename Traits>
struct Convolution : hopper::Slots<Params> {
  using Params = wgmma_sm90a::Params;
  // Registers: 184 + 72 = 2 * 128.
  static constexpr hopper::Roles kRoles{kWgmmaThreads, kWgmmaBlocksPerSm, kConsumerThreads / 128, 184, 72};

#ifdef CONVT_HAS_WGMMA
  float* const s_staged;
  int32_t* const s_lists;

  __device__ __forceinline__ Convolution(const Params& params, unsigned char* s_bytes)
      : Slots(params, s_bytes),
        s_staged(reinterpret_cast<float*>(s_bytes + params.staged_begin)),
        s_lists(reinterpret_cast<int32_t*>(s_bytes + params.lists_begin)) {}

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, params.source_slots, kLoaderThreads / 32, kConsumerThreads / 32);
    pipeline::init_slots(s_barriers, params.source_slots, count(), 1, kConsumerThreads / 32);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void take_part() const {}

  __device__ __forceinline__ void consume(int32_t) const {
    if (params.split_phases == 1) {
      consume_phases<1>();
    } else if (params.split_phases == 2) {
      consume_phases<2>();
    } else {
      consume_phases<4>();
    }
  }

  // All accumulators or half of them, shared by kPhases W phases.
  template <int kPhases>
  __device__ __forceinline__ void consume_phases() const {
    constexpr int kAll = Traits::kAccumulators;
    if constexpr (kPhases <= kAll) {
      if (params.split_phases * params.blocks >= kAll) return consume_tiles<kPhases, kAll / kPhases>();
    }
    if constexpr (2 * kPhases <= kAll) consume_tiles<kPhases, kAll / kPhases / 2>();
  }

  // kPhases W phases of kBlocks blocks: all tiles of this CTA.
  template <int kPhases, int kBlocks>
  __device__ __forceinline__ void consume_tiles() const {
    Ring sources = this->sources(), weights = this->weights();
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
      Accumulators<Traits> acc;
      const Tile tile = tile_of(params, number);
      multiply_tile<Traits, kPhases, kBlocks>(acc, params, tile, s_source, s_weights, &sources, &weights);
      if (params.channels_last) {
        store_channels_last<Traits, kPhases, kBlocks>(acc, params, tile);
      } else if (params.steps.num_steps == 0) {
        store_planes<kPhases, kBlocks, false>(acc, tile);
      } else {
        store_planes<kPhases, kBlocks, true>(acc, tile);
      }
    }
  }

  template <int kPhases, int kBlocks, bool kSteps>
  __device__ __forceinline__ void store_planes(const Accumulators<Traits>& acc, const Tile& tile) const {
    if (params.column_pairs) {
      store_staged<Traits, kPhases, kBlocks, 2, kSteps>(acc, params, tile, s_staged);
    } else {
      store_staged<Traits, kPhases, kBlocks, 1, kSteps>(acc, params, tile, s_staged);
    }
  }

  __device__ __forceinline__ void serve(int32_t warp) const {
    if (warp < kLoaderThreads / 32) {
      load_source();
    } else if (ptx::elect_one()) {
      const auto each_run = [&](const Tile& tile, auto&& load) {
        for (int32_t phase = 0; phase < params.split_phases; ++phase) {
          const RunRange runs = runs_of(params, tile, phase);
          for (int32_t index = runs.begin; index < runs.end; ++index) {
            const TapRun& run = params.program.runs[index];
            load(run.first_tap, run.first_tap + run.num_h * run.num_w);
          }
        }
      };
      hopper::load_packed_taps(params, s_weights, weights(), 1, each_run);
    }
  }

  __device__ __forceinline__ void load_source() const {
    const int32_t thread = static_cast<int32_t>(threadIdx.x) - kConsumerThreads;
    const uint32_t s_raw = s_source + params.raw_begin;
    if (params.by_channels) {
      load_channels<Traits>(params, s_source, s_lists, sources(), thread);
    } else if (params.gather) {
      load_columns<Traits, true>(params, s_source, s_raw, s_lists, sources(), thread);
    } else {
      load_columns<Traits, false>(params, s_source, s_raw, s_lists, sources(), thread);
    }
  }
#endif
};

}  // namespace convt::wgmma_sm90a

#define CONVT_WGMMA_INSTANCE(symbol, dtype, precision, block_n) \
  CONVT_DEFINE_PACKED_KERNEL(wgmma_sm90a, symbol, dtype, precision, block_n, Traits)
