// Where tiles are few, the CTAs of a cluster share one: each multiplies a part of its stages, and adds up and stores a
// part of the result's channels.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Which of the product's columns a CTA stores: blocks of 8.
struct Share {
  int32_t rank;
  int32_t blocks_log2;

  __device__ __forceinline__ bool has(int block) const { return is_of(block, rank); }
  __device__ __forceinline__ bool is_of(int block, int32_t other) const { return block >> blocks_log2 == other; }
  __device__ __forceinline__ int32_t place(int block) const { return block & ((1 << blocks_log2) - 1); }
};

template <typename Shape>
__device__ __forceinline__ Share share_of_block(const Params& params) {
  if (!Shape::kShares || params.parts == 1) return {0, 16};
  return {static_cast<int32_t>(ptx::cluster_rank()), 31 - __clz(Shape::kBlocks * 8 / params.parts)};
}

// Everybody's sums of all columns -> each CTA's whole sums of its own: its part, then the others' in the order of their
// stages. All threads that multiply, of all CTAs; `s_bytes` is free.
template <typename Shape>
__device__ __forceinline__ void add_parts(Sums<Shape>& sums, const Params& params, const Share& share,
                                          uint32_t s_bytes) {
  constexpr uint32_t kStep = Shape::kConsumers * 128 * 16;
  const uint32_t s_mine = s_bytes + threadIdx.x * 16;
  const uint32_t part_bytes = kStep << share.blocks_log2;
  ptx::cluster_barrier();  // nobody multiplies any more
#pragma unroll 1
  for (int32_t step = 1; step < params.parts; ++step) {
    // Each sends to another one, or all would wait for one and the same.
    const int32_t other = (share.rank + step) & (params.parts - 1);
    const uint32_t there = ptx::shared_of_rank(s_mine + share.rank * part_bytes, other);
#pragma unroll
    for (int j = 0; j < Shape::kBlocks * 8; ++j) {
      if (share.is_of(j, other)) ptx::store_cluster(there + share.place(j) * kStep, &sums.r[j / 8][4 * (j % 8)]);
    }
  }
  ptx::cluster_barrier();  // all parts are here
#pragma unroll 1
  for (int32_t other = 0; other < params.parts; ++other) {
    if (other == share.rank) continue;
    const uint32_t s_part = s_mine + other * part_bytes;
#pragma unroll
    for (int j = 0; j < Shape::kBlocks * 8; ++j) {
      if (!share.has(j)) continue;
      float four[4];
      ptx::load_shared<0>(four, s_part + share.place(j) * kStep);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.r[j / 8][4 * (j % 8) + i] += four[i];
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
