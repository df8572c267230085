// Where tiles are few, the CTAs of a cluster share one: each multiplies a part of the source's channels, and adds up
// and stores a part of the result's channels.
#pragma once

#include "reduce/cluster.cuh"
#include "strided_sm90a/tile.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Which of the result's channels a CTA stores.
template <typename Shape>
__device__ __forceinline__ Share share_of_block(const Params& params) {
  return reduce::share_of_block(params.splits, Shape::kN);
}

// Which of them a warpgroup stores, where both have the same positions.
template <typename Shape>
__device__ __forceinline__ Share share_of_warpgroup(int32_t warpgroup) {
  return {warpgroup, 31 - __clz(Shape::kN / 8 / kStridedConsumers)};
}

// Both warpgroups' sums of the same positions -> each one's of its channels. `s_bytes` is free where nobody multiplies.
template <typename Shape>
__device__ __forceinline__ void add_warpgroups(Accumulators<Shape>& sums, const Share& share, uint32_t s_bytes) {
  constexpr int kPlanes = Shape::kPhases * 2, kBlocks = Shape::kN / 8;
  constexpr uint32_t kStep = 128 * 16, kBytes = kPlanes * kBlocks / kStridedConsumers * kStep;
  const uint32_t s_thread = s_bytes + threadIdx.x % 128 * 16;
  const auto place = [&](int block, int plane) { return (share.place(block) * kPlanes + plane) * kStep; };
  ptx::named_barrier(1, kConsumerThreads);  // nobody multiplies any more
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (share.has(block)) continue;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      uint32_t four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = __float_as_uint(sums.r[plane / 2][plane % 2][4 * block + i]);
      ptx::store_shared(s_thread + (1 - share.rank) * kBytes + place(block, plane), four);
    }
  }
  ptx::named_barrier(1, kConsumerThreads);  // all sums are here
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (!share.has(block)) continue;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      float four[4];
      ptx::load_shared<0>(four, s_thread + share.rank * kBytes + place(block, plane));
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.r[plane / 2][plane % 2][4 * block + i] += four[i];
    }
  }
}

// All threads that multiply, of all CTAs; `s_bytes` is free.
template <typename Shape>
__device__ __forceinline__ void reduce_cluster(Accumulators<Shape>& sums, const Params& params, const Share& share,
                                          uint32_t s_bytes) {
  const auto sums_of = [&](int plane) { return sums.r[plane / 2][plane % 2]; };
  reduce::reduce_cluster<kConsumerThreads, Shape::kPhases * 2, Shape::kN / 8>(sums_of, params.splits, share, s_bytes);
}

#endif

}  // namespace convt::strided_sm90a
