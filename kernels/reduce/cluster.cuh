// Sums that the CTAs of a cluster have parts of: each multiplies a part of a tile's stages, and adds up and stores a
// part of its columns. Must not know: what was summed.
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"

namespace convt::reduce {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Which of a product's columns a CTA stores: blocks of 8.
struct Share {
  int32_t rank;
  int32_t blocks_log2;

  __device__ __forceinline__ bool has(int block) const { return is_of(block, rank); }
  __device__ __forceinline__ bool is_of(int block, int32_t other) const { return block >> blocks_log2 == other; }
  __device__ __forceinline__ int32_t place(int block) const { return block & ((1 << blocks_log2) - 1); }
};

__device__ __forceinline__ Share share_of_block(int32_t splits, int32_t columns) {
  if (splits == 1) return {0, 16};
  return {static_cast<int32_t>(ptx::cluster_rank()), 31 - __clz(columns / 8 / splits)};
}

// Everybody's sums of all columns -> each CTA's whole sums of its own: its part, then the others' in the order of their
// stages. kThreads threads of each CTA have kPlanes products of kBlocks blocks of 8 columns; `sums_of` is a plane's
// sums, four for each block. `s_bytes` is free.
template <int kThreads, int kPlanes, int kBlocks, typename SumsOf>
__device__ __forceinline__ void reduce_cluster(const SumsOf& sums_of, int32_t splits, const Share& share, uint32_t s_bytes) {
  constexpr uint32_t kStep = kThreads * 16;
  const uint32_t s_mine = s_bytes + threadIdx.x * 16;
  const uint32_t part_bytes = kPlanes * kStep << share.blocks_log2;
  ptx::cluster_barrier();  // nobody multiplies any more
#pragma unroll 1
  for (int32_t step = 1; step < splits; ++step) {
    // Each sends to another one: all at once to the same would wait for that one's shared memory.
    const int32_t other = (share.rank + step) & (splits - 1);
    const uint32_t there = ptx::shared_of_rank(s_mine + share.rank * part_bytes, other);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (!share.is_of(block, other)) continue;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        ptx::store_cluster(there + (share.place(block) * kPlanes + plane) * kStep, sums_of(plane) + 4 * block);
      }
    }
  }
  ptx::cluster_barrier();  // all parts are here
#pragma unroll 1
  for (int32_t other = 0; other < splits; ++other) {
    if (other == share.rank) continue;
    const uint32_t s_part = s_mine + other * part_bytes;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (!share.has(block)) continue;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        float four[4];
        ptx::load_shared<0>(four, s_part + (share.place(block) * kPlanes + plane) * kStep);
        float* sums = sums_of(plane) + 4 * block;
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += four[i];
      }
    }
  }
}

#endif

}  // namespace convt::reduce
