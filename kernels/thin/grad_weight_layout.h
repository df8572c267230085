// Gradient of the weight of a thin layer: the accumulators of a warp. The planner, the launcher and the kernel
// (thin/grad_weight.cuh) share this definition. tiling/strips.h defines pixels, the order of sums and stages.
//
// A CTA owns block_runs runs of thread_kw taps of each tap row; a warp owns thread_ci x thread_co channels of one tap
// row and run. A lane processes every 32nd column of a strip. If the strip is narrower than 32, it processes one column
// of every (32 / strip)-th row.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/problem.h"
#include "thin/instances.h"
#include "tiling/strips.h"

namespace convt {

// Tile of the gradient of the weight. The first two fields decide the order of sums.
struct ThinGradWeightTile {
  int32_t strip;  // columns of pixels
  int32_t units_per_chunk;  // units per chunk, which is a CTA's work
  int32_t instance;  // index into kThinGradWeightInstances
  int32_t block_ci;  // channels per CTA and group, multiples of the instance's
  int32_t block_co;
  int32_t block_kh;  // tap rows per CTA
  int32_t block_runs;  // runs of the instance's taps per CTA
  int32_t tile_units;  // units per stage
  int32_t stages;  // pipeline stages

  CONVT_TILE_FIELDS(block_ci, block_co, block_kh, block_runs, strip, units_per_chunk, tile_units, stages)
};

inline constexpr int32_t kMaxThinWeightThreads = 384;
// Byte offset and entry size of the table of warps, which contains each warp's first channels and taps.
inline constexpr int32_t kThinWeightWarpsBegin = kStripWarpsBegin, kThinWeightWarpBytes = 16;
static_assert(kThinWeightWarpsBegin + kMaxThinWeightThreads / 32 * kThinWeightWarpBytes <= kStripHeadBytes);

// Returns false if the plan is illegal for the problem or exceeds 32 bits.
bool make_thin_grad_weight_layout(const ConvTProblem& problem, const ThinGradWeightTile& plan, StripLayout* layout);

}  // namespace convt

namespace convt::thin {

// Kernel parameters. thin/launch.cpp fills them; they are constant for the whole grid.
struct GradWeightParams : tiling::StripParams {};

}  // namespace convt::thin
