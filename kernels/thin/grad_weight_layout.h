// The gradient of the weight of a thin layer: the accumulators of a warp. One definition for the planner, the launcher
// and the kernel (thin/grad_weight.cuh). tiling/strips.h defines pixels, the order of sums and stages.
//
// A CTA owns block_runs runs of thread_kw taps of each tap row, a warp thread_ci x thread_co channels of one tap row
// and run. A lane of a warp takes every 32nd column of a strip, or, where a strip is narrower, a column of one of 32 /
// strip rows.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "thin/instances.h"
#include "tiling/strip_params.h"

namespace convt {

// The tile for the gradient of the weight. The first two decide the order of sums.
struct ThinGradWeightTile {
  int32_t strip;  // columns of pixels
  int32_t units_per_chunk;  // of a CTA
  int32_t instance;  // index into kThinGradWeightInstances
  int32_t block_ci;  // channels of a CTA, per group, multiples of the instance's
  int32_t block_co;
  int32_t block_kh;  // tap rows of a CTA
  int32_t block_runs;  // runs of the instance's taps of a CTA
  int32_t tile_units;  // of a stage
  int32_t stages;  // pipeline depth

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_ci", block_ci);
    field("block_co", block_co);
    field("block_kh", block_kh);
    field("block_runs", block_runs);
    field("strip", strip);
    field("units_per_chunk", units_per_chunk);
    field("tile_units", tile_units);
    field("stages", stages);
  }
};

inline constexpr int32_t kMaxThinWeightThreads = 384;
// Byte offset and size of the table of warps, which contains each warp's first channels and taps.
inline constexpr int32_t kThinWeightWarpsBegin = kStripWarpsBegin, kThinWeightWarpBytes = 16;
static_assert(kThinWeightWarpsBegin + kMaxThinWeightThreads / 32 * kThinWeightWarpBytes <= kStripHeadBytes);

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_grad_weight_layout(const ConvTProblem& problem, const ThinGradWeightTile& plan, StripLayout* layout);

}  // namespace convt

namespace convt::thin {

// What a kernel is launched with. Filled by thin/launch.cpp, constant for the whole grid.
struct GradWeightParams : tiling::StripParams {};

}  // namespace convt::thin
