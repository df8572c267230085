// The NHWC engine: one persistent CTA an SM, two warpgroups that multiply and store, two threads that load. Every
// result is one sum in one warpgroup's accumulator, or one for each CTA of a cluster, in an order that does not depend
// on timing.
#pragma once

#include "hopper/kernel.cuh"
#include "nhwc_sm90a/epilogue.cuh"
#include "nhwc_sm90a/loader.cuh"
#include "nhwc_sm90a/split_mainloop.cuh"

namespace convt::nhwc_sm90a {

template <typename Shape>
struct Convolution {
  using Params = nhwc_sm90a::Params;
  // Registers: 2 * 232 + 40 = 3 * 168.
  static constexpr hopper::Roles kRoles{kNhwcThreads, 1, kNhwcConsumers, 232, 40};

#ifdef CONVT_HAS_WGMMA
  const Params& params;
  const uint32_t s_source, s_weights, s_barriers, s_sums_barrier;
  Share share;
  Stages stages;

  __device__ __forceinline__ Convolution(const Params& params, const unsigned char* s_bytes)
      : params(params),
        s_source(ptx::shared_address(s_bytes)),
        s_weights(s_source + params.weights_begin),
        s_barriers(s_source + params.barriers_begin),
        s_sums_barrier(s_barriers + 16 * (params.source_slots + params.weight_slots)) {}

  __device__ __forceinline__ Ring sources() const { return Ring(s_barriers, params.source_slots); }
  __device__ __forceinline__ Ring weights() const {
    return Ring(s_barriers + 16 * params.source_slots, params.weight_slots);
  }

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x > 0) return;
    pipeline::init_slots(s_barriers, 0, params.source_slots + params.weight_slots, 1, kNhwcConsumers * 4);
    ptx::mbarrier_init(s_sums_barrier, 1);
    ptx::fence_mbarrier_init();
  }

  __device__ __forceinline__ void take_part() {
    share = share_of_block<Shape>(params);
    stages = stages_of_split(params, share.rank);
  }

  __device__ __forceinline__ void consume(int32_t warp) const {
    Ring sources = this->sources(), weights = this->weights();
    int32_t places[Shape::kBlocks];
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) places[block] = place_of_lane<Shape>(params, warp, block);
    const uint32_t s_staged = s_source + params.staged_begin, s_bias = s_source + params.bias_begin;
    uint32_t turn = 0;
    for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step(params)) {
      const float bias = bias_of_thread<Shape>(params, tile_of(params, number));
      Accumulators<Shape> sums;
      const int32_t window = first_window(params, tile_of(params, number));
      if constexpr (Shape::Traits::kSplit) {
        multiply_split_tile<Shape>(sums, params, window, stages, places, s_source, s_weights, &sources, &weights);
      } else if (params.boxes) {
        multiply_boxes<Shape>(sums, params, window, stages, warp, s_source, s_weights, &sources, &weights);
      } else {
        multiply_tile<Shape>(sums, params, window, stages, places, s_source, s_weights, &sources, &weights);
      }
      if (params.splits > 1) reduce_cluster<Shape>(sums, params, share, s_source, s_sums_barrier);
      ptx::forget(number);  // what follows from it takes registers from the products
      if (params.staged) {
        stage_tile<Shape>(sums, params, tile_of(params, number), warp, bias, s_staged, s_bias, &turn);
      } else {
        store_tile<Shape>(sums, params, tile_of(params, number), share, warp);
      }
    }
    if (threadIdx.x == 0) ptx::bulk_wait_read();  // shared memory stays until then
  }

  __device__ __forceinline__ void serve(int32_t warp) const {
    if (warp > 1 || !ptx::elect_one()) return;
    if (warp == 0) {
      load_source<Shape>(params, stages, s_source, sources());
    } else {
      load_weights<Shape>(params, stages, s_weights, weights());
    }
  }
#endif
};

}  // namespace convt::nhwc_sm90a
