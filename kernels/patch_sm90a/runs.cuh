// The patch engine's kernel for runs of grad_output: two warpgroups multiply and store, a warp loads. Every result is
// one sum in one warpgroup's accumulator, or one for each CTA of a cluster, in an order that does not depend on timing.
#pragma once

#include "patch_sm90a/runs_loader.cuh"
#include "patch_sm90a/runs_mainloop.cuh"
#include "patch_sm90a/runs_store.cuh"

namespace convt::patch_sm90a {

// Per thread. Those of the launch: 2 * 216 + 72 = 3 * 168.
inline constexpr int kRunsConsumerRegisters = 216;
inline constexpr int kRunsLoaderRegisters = 72;

template <typename Element, int kChannels>
__global__ void __launch_bounds__(runs_threads(kChannels), kChannels == kRunsPairedChannels ? 2 : 1)
    convolve_runs(const __grid_constant__ RunsParams params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_weights = ptx::shared_address(s_bytes);
  const uint32_t s_source = s_weights + params.slots * params.weights_bytes;
  const uint32_t s_barriers = s_weights + params.barriers_begin, s_sums_barrier = s_barriers + 16 * params.slots;
  const RunsTile tile = runs_tile(params, kChannels);
  const Ring ring(s_barriers, params.slots);
  constexpr int kMeeting = kRunsConsumerThreads + 32;
  if (threadIdx.x >= kRunsConsumerThreads) {
    if constexpr (runs_moves_registers(kChannels)) ptx::give_registers<kRunsLoaderRegisters>();
    if (threadIdx.x >= kRunsConsumerThreads + 32) return;
    if (threadIdx.x == kRunsConsumerThreads) {
      for (int32_t slot = 0; slot < params.slots; ++slot) {
        ptx::mbarrier_init(s_barriers + 16 * slot, 1);
        ptx::mbarrier_init(s_barriers + 16 * slot + 8, kRunsConsumerThreads / 32);
      }
      ptx::mbarrier_init(s_sums_barrier, 1);
      ptx::fence_mbarrier_init();
      if (params.splits > 1) ptx::mbarrier_expect(s_sums_barrier, params.sums_bytes);
    }
    __syncwarp();
    ptx::named_arrive(1, kMeeting);  // the barriers exist
    if (params.splits > 1) ptx::cluster_arrive();
    load_runs(params, tile, s_weights, s_source, ring);
    if (params.splits > 1) ptx::cluster_wait();
    return;
  }
  if constexpr (runs_moves_registers(kChannels)) ptx::take_registers<kRunsConsumerRegisters>();
  ptx::named_barrier(1, kMeeting);
  if (params.splits > 1) ptx::cluster_arrive();
  RunsSums<kChannels> sums;
  multiply_runs<Element>(sums, params, tile.end_stage - tile.first_stage, s_weights, s_source, ring);
  const Share share = reduce::share_of_block(params.splits, kChannels);
  if (params.splits > 1) reduce_runs_cluster(sums, params, share, s_weights + params.sums_begin, s_sums_barrier);
  store_runs_tile<Element>(sums, params, tile, share, s_weights);
#endif
}

}  // namespace convt::patch_sm90a
