// The patch kernel: one or two persistent CTAs per SM, with one or two consumer warpgroups that multiply and store, and
// one producer warpgroup. Each result is accumulated by one warpgroup, or by one per CTA of a cluster, in an order that
// does not depend on timing.
#pragma once

#include "hopper/kernel.cuh"
#include "patch_sm90a/instances.h"
#include "patch_sm90a/mainloop.cuh"
#include "patch_sm90a/staged.cuh"

namespace convt::patch_sm90a {

template <typename Shape>
struct Convolution {
  using Params = patch_sm90a::Params;
  using Element = typename Shape::Element;
  static constexpr int kConsumers = Shape::kConsumers;
  // Registers per thread: 192 + 64 = 2 * 128, 2 * 216 + 72 = 3 * 168.
  static constexpr hopper::Roles kRoles{patch_threads(kConsumers), 3 - kConsumers, kConsumers,
                                        kConsumers == 1 ? 192 : 216, kConsumers == 1 ? 64 : 72};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  unsigned char* const s_bytes;
  const uint32_t s_source, s_weights, s_barriers, s_weight_barriers;
  Stages stages;

  __device__ __forceinline__ Convolution(const Params& params, unsigned char* s_bytes)
      : params(params),
        s_bytes(s_bytes),
        s_source(ptx::shared_address(s_bytes)),
        s_weights(s_source + params.weights_begin),
        s_barriers(s_source + params.barriers_begin),
        s_weight_barriers(s_barriers + 16 * params.source_slots) {}

  __device__ __forceinline__ void init_barriers() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, params.source_slots, 32 * kPatchLoaderWarps, kConsumers * 4);
    pipeline::init_slots(s_weight_barriers, 0, params.weight_slots, 1, kConsumers * 4);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void assign_work() { stages = stages_of_block<Shape>(params); }

  __device__ __forceinline__ void run_consumer(int32_t warp) const {
    const int32_t consumer = warp / 4;
    const uint32_t s_bias = s_weight_barriers + 16 * params.weight_slots + threadIdx.x / 32 * (kPatchChannels * 4);
    Ring sources(s_barriers, params.source_slots), weights(s_weight_barriers, params.weight_slots);
    for (int32_t number = first_tile<Shape>(params); number < params.num_tiles; number += tile_step()) {
      Tile tile = tile_of<Shape>(params, number);
      Bias<Shape> bias;
      if constexpr (!Shape::kGathers) bias.load(params, tile);
      Accumulators<Shape> acc;
      const bool first = number == first_tile<Shape>(params);
      if constexpr (Shape::kSplit) {
        multiply_split_tile<Shape>(acc, params, stages.end - stages.begin, first, consumer, s_source, s_weights,
                                   &sources, &weights);
      } else {
        multiply_tile<Shape>(acc, params, stages.end - stages.begin, first, consumer, s_source, s_weights, &sources,
                             &weights);
      }
      if constexpr (!Shape::kGathers) bias.store(s_bias);
      const ClusterSlice share = slice_of_block<Shape>(params);
      if constexpr (Shape::kShares) {
        if (params.splits > 1) reduce_scatter_dsmem<Shape>(acc, params, share, s_source);
      }
      tile.begin += consumer * params.step;
      if (Shape::kGathers || params.steps.num_steps == 0) {
        store_tile<false>(acc, tile, share, consumer, s_bias);
      } else {
        store_tile<!Shape::kGathers>(acc, tile, share, consumer, s_bias);
      }
    }
  }

  template <bool kSteps>
  __device__ __forceinline__ void store_tile(const Accumulators<Shape>& acc, const Tile& tile,
                                             const ClusterSlice& share, int32_t consumer, uint32_t s_bias) const {
    auto* s_staged =
        reinterpret_cast<Element*>(s_bytes + params.staged_begin) + consumer * patch_staged_elements(Shape::kElement);
    if constexpr (Shape::kByChannels) {
      return store_channels<Shape, kSteps>(acc, params, tile, s_bias);
    } else if constexpr (Shape::kForm == PatchForm::kPairs && Shape::kBlocks == kPatchTaps) {
      if (params.whole_rows) {
        if (params.by_row.value % 2 == 0) {
          return store_rows<Shape, true, kSteps>(acc, params, tile, s_staged, consumer, s_bias);
        }
        return store_rows<Shape, false, kSteps>(acc, params, tile, s_staged, consumer, s_bias);
      }
    }
    if constexpr (!Shape::kGathers) {
      if (params.staged) {
        constexpr int kVector = 16 / Shape::kElement;
        if (params.vectors) return store_runs<Shape, kVector, kSteps>(acc, params, tile, s_staged, consumer, s_bias);
        return store_runs<Shape, 4, kSteps>(acc, params, tile, s_staged, consumer, s_bias);
      }
    }
    if constexpr (Shape::kExchanges) {
      if (params.exchange) return store_exchanged<Shape>(acc, params, tile, share);
    }
    store_planes<Shape, kSteps>(acc, params, tile, share, s_bias);
  }

  __device__ __forceinline__ void run_producer(int32_t warp) const {
    ptx::wait_for_previous_kernel();  // the packing kernel; consumers wait for their first stage
    if (warp < kPatchLoaderWarps) {
      load_source<Shape>(params, stages, s_source, s_barriers, static_cast<int32_t>(threadIdx.x % 128));
    } else if (ptx::elect_one()) {
      load_weights<Shape>(params, stages, s_weights, s_weight_barriers);
    }
  }
#endif
};

}  // namespace convt::patch_sm90a
