// The patch engine: persistent CTAs, one or two an SM, one or two warpgroups that multiply and store, one that loads.
// Every result is one sum in one warpgroup's accumulator, or one for each CTA of a cluster, in an order that does not
// depend on timing.
#pragma once

#include "patch_sm90a/epilogue.cuh"
#include "patch_sm90a/loader.cuh"
#include "patch_sm90a/cluster.cuh"
#include "patch_sm90a/split.cuh"
#include "patch_sm90a/staged.cuh"

namespace convt::patch_sm90a {

// Per thread. With a loading warpgroup's these are those of the launch: 192 + 64 = 2 * 128, 2 * 216 + 72 = 3 * 168.
inline constexpr int loader_registers(int consumers) { return consumers == 1 ? 64 : 72; }
inline constexpr int consumer_registers(int consumers) { return consumers == 1 ? 192 : 216; }

template <typename Shape>
__global__ void __launch_bounds__(patch_threads(Shape::kConsumers), 3 - Shape::kConsumers)
    convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  constexpr int kConsumers = Shape::kConsumers;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  using Element = typename Shape::Element;
  auto* s_staged = reinterpret_cast<Element*>(s_bytes + params.staged_begin);
  const uint32_t s_weight_barriers = s_barriers + 16 * params.source_slots;
  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < params.source_slots + params.weight_slots; ++slot) {
      const bool of_source = slot < params.source_slots;
      ptx::mbarrier_init(s_barriers + 16 * slot, of_source ? 32 * kPatchLoaderWarps : 1);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kConsumers * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers exist

  const Stages stages = stages_of_block<Shape>(params);
  if (threadIdx.x < kConsumers * 128) {
    ptx::take_registers<consumer_registers(kConsumers)>();
    // A value that the compiler knows to be the same for the whole warp.
    const int32_t consumer = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 128, 0);
    const uint32_t s_bias =
        s_barriers + 16 * (params.source_slots + params.weight_slots) + threadIdx.x / 32 * (kPatchChannels * 4);
    Ring sources(s_barriers, params.source_slots), weights(s_weight_barriers, params.weight_slots);
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
      Tile tile = tile_of<Shape>(params, number);
      Bias<Shape> bias;
      if constexpr (!Shape::kGathers) bias.load(params, tile);
      Accumulators<Shape> sums;
      if constexpr (Shape::kSplit) {
        multiply_split_tile<Shape>(sums, params, stages.end - stages.begin, number == first_tile(params), consumer,
                                   s_source, s_weights, &sources, &weights);
      } else {
        multiply_tile<Shape>(sums, params, stages.end - stages.begin, number == first_tile(params), consumer, s_source,
                             s_weights, &sources, &weights);
      }
      if constexpr (!Shape::kGathers) bias.store(s_bias);
      const Share share = share_of_block<Shape>(params);
      if constexpr (Shape::kShares) {
        if (params.splits > 1) reduce_cluster<Shape>(sums, params, share, s_source);
      }
      tile.begin += consumer * params.step;
      if constexpr (Shape::kByChannels) {
        store_channels<Shape>(sums, params, tile, s_bias);
      } else {
        Element* s_mine = s_staged + consumer * patch_staged_elements(Shape::kElement);
        if constexpr (Shape::kForm == PatchForm::kPairs && Shape::kBlocks == kPatchTaps) {
          if (params.whole_rows) {
            if (params.by_row.value % 2 == 0) {
              store_rows<Shape, true>(sums, params, tile, s_mine, consumer, s_bias);
            } else {
              store_rows<Shape, false>(sums, params, tile, s_mine, consumer, s_bias);
            }
            continue;
          }
        }
        if constexpr (!Shape::kGathers) {
          if (params.staged) {
            if (params.vectors) {
              store_runs<Shape, 16 / Shape::kElement>(sums, params, tile, s_mine, consumer, s_bias);
            } else {
              store_runs<Shape, 4>(sums, params, tile, s_mine, consumer, s_bias);
            }
            continue;
          }
        }
        if constexpr (Shape::kExchanges) {
          if (params.exchange) {
            store_exchanged<Shape>(sums, params, tile, share);
            continue;
          }
        }
        store_planes<Shape>(sums, params, tile, share, s_bias);
      }
    }
  } else {
    ptx::give_registers<loader_registers(kConsumers)>();
    ptx::wait_for_previous_kernel();  // which packs; consumers touch nothing before their first stage is here
    const auto thread = static_cast<int32_t>(threadIdx.x) - kConsumers * 128;
    // A value that the compiler knows to be the same for the whole warp.
    if (__shfl_sync(0xffffffffu, thread / 32, 0) < kPatchLoaderWarps) {
      load_source<Shape>(params, stages, s_source, s_barriers, thread);
    } else if (ptx::elect_one()) {
      load_weights<Shape>(params, stages, s_weights, s_weight_barriers);
    }
  }
#endif
}

}  // namespace convt::patch_sm90a
