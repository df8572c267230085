// Where tiles are few, the CTAs of a cluster share one: each multiplies a part of its stages, and adds up and stores a
// part of the result's channels.
#pragma once

#include "nhwc_sm90a/tile.cuh"
#include "reduce/parts.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Which of the weights' columns a CTA stores.
template <typename Shape>
__device__ __forceinline__ Share share_of_block(const Params& params) {
  return reduce::share_of_block(params.parts, Shape::kN);
}

// All threads that multiply, of all CTAs; `s_bytes` is free.
template <typename Shape>
__device__ __forceinline__ void add_parts(Sums<Shape>& sums, const Params& params, const Share& share,
                                          uint32_t s_bytes) {
  const auto sums_of = [&](int plane) { return sums.r[plane]; };
  reduce::add_parts<kConsumerThreads, Shape::kBlocks, Shape::kN / 8>(sums_of, params.parts, share, s_bytes);
}

#endif

}  // namespace convt::nhwc_sm90a
