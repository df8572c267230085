// How the patch engine's producers fill a stage of the source.
#pragma once

#include "patch_sm90a/tile.cuh"
#include "pipeline/copy_vector.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

using pipeline::announce;
using pipeline::copy_vector;

// The lanes that copy one row of a stage, kVectors vectors of kBytes, and how many rows a warp copies at a time.
template <int kBytes, int kVectors>
struct RowCopy {
  static constexpr int kLanes = kVectors < 32 ? kVectors : 32;
  static constexpr int kTerms = kVectors / kLanes;
  static constexpr int kRows = 32 / kLanes;
  static constexpr int kStep = kPatchLoaderWarps * kRows;  // of all warps together

  __device__ __forceinline__ static int32_t row(int32_t thread) { return thread / 32 * kRows + thread % 32 / kLanes; }
  __device__ __forceinline__ static int32_t lane(int32_t thread) { return thread % kLanes; }
};

#endif

}  // namespace convt::patch_sm90a
