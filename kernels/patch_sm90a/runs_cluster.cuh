// Where tiles are few, the CTAs of a cluster share one: each multiplies a part of its stages, and adds up and stores a
// part of the result's channels. The others' sums have room of their own, so that nobody waits for the slowest before
// it sends.
#pragma once

#include "patch_sm90a/runs_tile.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "reduce/cluster.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Everybody's sums of all channels -> each CTA's whole sums of its own: its part, then the others' in the order of
// their stages. All threads that multiply, of all CTAs; `s_barrier` counts what has come.
template <int kChannels>
__device__ __forceinline__ void reduce_runs_cluster(RunsSums<kChannels>& sums, const RunsParams& params, const Share& share,
                                               uint32_t s_sums, uint32_t s_barrier) {
  constexpr uint32_t kStep = kRunsConsumerThreads * 16;
  const uint32_t part_bytes = kStep << share.blocks_log2;
  const uint32_t s_mine = s_sums + threadIdx.x * 16;
  // The place of an other part: parts follow each other, but the CTA's own has none.
  const auto place_of = [&](int32_t part, int32_t rank) { return (part - (part > rank)) * part_bytes; };
  ptx::cluster_wait();  // everybody's barrier exists
#pragma unroll 1
  for (int32_t step = 1; step < params.splits; ++step) {
    // Each sends to another one: all at once to the same would wait for that one's shared memory.
    const int32_t other = (share.rank + step) & (params.splits - 1);
    const uint32_t there = ptx::shared_of_rank(s_mine + place_of(share.rank, other), other);
    const uint32_t barrier = ptx::shared_of_rank(s_barrier, other);
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
      if (share.is_of(j, other)) ptx::store_cluster_async(there + share.place(j) * kStep, sums.r + 4 * j, barrier);
    }
  }
  ptx::mbarrier_wait(s_barrier, 0);  // all parts are here
#pragma unroll 1
  for (int32_t other = 0; other < params.splits; ++other) {
    if (other == share.rank) continue;
    const uint32_t s_part = s_mine + place_of(other, share.rank);
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
      if (!share.has(j)) continue;
      float four[4];
      ptx::load_shared<0>(four, s_part + share.place(j) * kStep);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.r[4 * j + i] += four[i];
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
