// The window engine: one persistent CTA an SM, two warpgroups that multiply, one thread that loads, seven warps that
// store a tile while the next one is multiplied. Every
// result is one sum in one warpgroup's accumulator, in an order that does not depend on timing.
#pragma once

#include "window_sm90a/epilogue.cuh"
#include "window_sm90a/loader.cuh"
#include "window_sm90a/mainloop.cuh"
#include "window_sm90a/split_mainloop.cuh"

namespace convt::window_sm90a {

// Per thread. Those of all warpgroups are the launch's: 2 * 216 + 2 * 40 = 4 * 128.
inline constexpr int kStoreRegisters = 40;
inline constexpr int kConsumerRegisters = 216;

#ifdef CONVT_HAS_WGMMA

// All tiles of the CTA, a warpgroup's part of them.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_tiles(const Params& params, int32_t warp, uint32_t s_slots,
                                               uint32_t s_barriers, uint32_t s_staged, uint32_t s_staged_barriers) {
  const int32_t consumer = warp / 4;
  Ring ring(s_barriers, params.slots);
  Source<Shape, kShifted> source(params, warp, s_slots);
  uint32_t parity = 0;
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    Accumulators<Shape> sums;
    if constexpr (kShifted) source.begin(tile_of(params, number));
    if constexpr (Shape::Traits::kSplit) {
      multiply_split_tile(sums, params, source, s_slots, &ring);
    } else {
      multiply_tile(sums, params, source, s_slots, &ring);
    }
#pragma unroll
    for (int part = 0; part < Shape::kStagedParts; ++part, parity ^= 1) {
      ptx::mbarrier_wait(s_staged_barriers + 16 * consumer + 8, parity);  // what was here has been stored
      stage_part<Shape>(sums, part, params, warp, s_staged + consumer * Shape::kStagedBytes);
      ptx::mbarrier_arrive(s_staged_barriers + 16 * consumer);
    }
  }
}

#endif

template <typename Shape>
__global__ void __launch_bounds__(kWindowThreads, 1) convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_slots = ptx::shared_address(s_bytes);
  const uint32_t s_staged = s_slots + params.staged_begin;
  const uint32_t s_barriers = s_slots + params.barriers_begin;
  const uint32_t s_staged_barriers = s_barriers + 16 * params.slots;
  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < params.slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, 1);
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, kWindowWarps);
    }
    for (int32_t consumer = 0; consumer < 2; ++consumer) {
      // Every thread says for itself what it has written and read.
      ptx::mbarrier_init(s_staged_barriers + 16 * consumer, kWindowWarps / 2 * 32);
      ptx::mbarrier_init(s_staged_barriers + 16 * consumer + 8, kWindowStoreWarps * 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers exist

  // A value that the compiler knows to be the same for the whole warp.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  if (warp < kWindowWarps) {
    ptx::take_registers<kConsumerRegisters>();
    if constexpr (Shape::kShifts) {
      if (params.row_classes_log2 + params.channel_classes_log2 > 0) {
        multiply_tiles<Shape, true>(params, warp, s_slots, s_barriers, s_staged, s_staged_barriers);
        return;
      }
    }
    multiply_tiles<Shape, false>(params, warp, s_slots, s_barriers, s_staged, s_staged_barriers);
  } else {
    ptx::give_registers<kStoreRegisters>();
    if (warp > kWindowWarps) {
      store_tiles<Shape>(params, warp - kWindowWarps - 1, s_staged, s_staged_barriers);
    } else if (ptx::elect_one()) {
      ptx::wait_for_previous_kernel();  // which packs; consumers touch nothing before their first stage is here
      load_tiles<Shape>(params, s_slots, s_barriers);
    }
  }
#endif
}

}  // namespace convt::window_sm90a
