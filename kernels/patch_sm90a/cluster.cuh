// Where tiles are few and patches are gathered, the CTAs of a cluster share one: each multiplies a part of its stages,
// and adds up and stores a part of the result's channels.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "reduce/cluster.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Which of the product's columns a CTA stores.
template <typename Shape>
__device__ __forceinline__ Share share_of_block(const Params& params) {
  return reduce::share_of_block(Shape::kShares ? params.splits : 1, Shape::kBlocks * kPatchChannels);
}

// All threads that multiply, of all CTAs; `s_bytes` is free.
template <typename Shape>
__device__ __forceinline__ void reduce_cluster(Accumulators<Shape>& sums, const Params& params, const Share& share,
                                          uint32_t s_bytes) {
  constexpr int kThreads = Shape::kConsumers * 128, kBlocks = Shape::kBlocks * kPatchChannels / 8;
  const auto sums_of = [&](int) { return &sums.r[0][0]; };  // a block of 64 columns behind the other
  reduce::reduce_cluster<kThreads, 1, kBlocks>(sums_of, params.splits, share, s_bytes);
}

#endif

}  // namespace convt::patch_sm90a
