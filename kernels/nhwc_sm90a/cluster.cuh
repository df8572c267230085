// Where tiles are few, the CTAs of a cluster share one: each multiplies a part of its stages, and adds up and stores a
// part of the result's channels.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "reduce/cluster.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Which of the weights' columns a CTA stores.
template <typename Shape>
__device__ __forceinline__ Share share_of_block(const Params& params) {
  return reduce::share_of_block(params.splits, Shape::kN);
}

// Everybody's sums of all columns -> each CTA's whole sums of its own: its part, then the others' in the order of their
// stages. All threads that multiply; a thread's sums are four for each block of 8 columns. `s_sums` is free;
// `s_barrier` counts what has come.
template <typename Shape>
__device__ __forceinline__ void reduce_cluster(Accumulators<Shape>& sums, const Params& params, const Share& share, uint32_t s_sums,
                                          uint32_t s_barrier) {
  constexpr uint32_t kStep = kConsumerThreads * 16;
  const uint32_t part_bytes = Shape::kBlocks * kStep << share.blocks_log2;
  const uint32_t s_mine = s_sums + threadIdx.x * 16;
  // The place of an other part: parts follow each other, but the CTA's own has none.
  const auto place_of = [&](int32_t part, int32_t rank) { return (part - (part > rank)) * part_bytes; };
  if (threadIdx.x == 0) ptx::mbarrier_expect(s_barrier, (params.splits - 1) * part_bytes);
  ptx::cluster_barrier();  // nobody multiplies any more
#pragma unroll 1
  for (int32_t step = 1; step < params.splits; ++step) {
    // Each sends to another one: all at once to the same would wait for that one's shared memory.
    const int32_t other = (share.rank + step) & (params.splits - 1);
    const uint32_t there = ptx::shared_of_rank(s_mine + place_of(share.rank, other), other);
    const uint32_t barrier = ptx::shared_of_rank(s_barrier, other);
#pragma unroll
    for (int n = 0; n < Shape::kN / 8; ++n) {
      if (!share.is_of(n, other)) continue;
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::store_cluster_async(there + (share.place(n) * Shape::kBlocks + block) * kStep, sums.r[block] + 4 * n,
                                 barrier);
      }
    }
  }
  ptx::mbarrier_wait(s_barrier, 0);  // all parts are here
#pragma unroll 1
  for (int32_t other = 0; other < params.splits; ++other) {
    if (other == share.rank) continue;
    const uint32_t s_part = s_mine + place_of(other, share.rank);
#pragma unroll
    for (int n = 0; n < Shape::kN / 8; ++n) {
      if (!share.has(n)) continue;
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        float four[4];
        ptx::load_shared<0>(four, s_part + (share.place(n) * Shape::kBlocks + block) * kStep);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.r[block][4 * n + i] += four[i];
      }
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
