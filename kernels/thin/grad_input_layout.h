// Gradient of the input of a thin layer: the results of a CTA and its shared-memory layout. The planner (is it legal?
// does it fit?), launch/ and the kernel (thin/grad_input.cuh) share this definition.
//
// Positions are elements (ih, iw) of the result. Tap k of position q reads row (or column)
//     q * stride - padding + k * dilation
// of grad_output. Rows are staged unconverted in the slots of tiling/slots.h.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/slots.h"

namespace convt {

// Tile of the gradient of the input.
struct ThinGradInputTile {
  int32_t instance;      // index into kThinGradInputInstances
  int32_t tile_h;        // positions: elements of the result; a multiple of the instance's
  int32_t tile_w;        // a multiple of 32
  int32_t block_ci;      // result channels per CTA and group, a multiple of the instance's
  int32_t block_groups;  // groups per CTA; more than 1 only with all channels of each
  int32_t chunk_co;      // channels of grad_output per stage and group
  int32_t stages;        // pipeline stages
  int32_t tiles_per_block;

  CONVT_TILE_FIELDS(block_ci, block_groups, tile_h, tile_w, tiles_per_block, chunk_co, stages)
};

inline constexpr int32_t kMaxThinGradientTaps = 16;  // per axis

// Threads per CTA: limited by the registers per thread, which grow with its accumulators.
CONVT_HOST_DEVICE constexpr int32_t max_thin_gradient_threads(int32_t sums) { return sums > 32 ? 512 : 256; }
CONVT_HOST_DEVICE constexpr int32_t min_thin_gradient_blocks(int32_t sums) { return sums > 32 ? 1 : 3; }

// Launch parameters that follow from the problem and the plan. Excludes pointers and strides of operands.
struct ThinGradInputLayout {
  Axis h;
  Axis w;
  int32_t groups;
  int32_t group_ci;
  int32_t group_co;

  // Tiles: tile_h x tile_w positions of one image. A pass is the rest of a CTA's work: groups and channels.
  int32_t tile_h;
  int32_t tile_w;
  int32_t tiles_h;
  int32_t tiles_w;
  int32_t num_tiles;
  int32_t tiles_per_block;
  int32_t block_ci;
  int32_t block_groups;
  int32_t ci_tiles;
  int32_t passes;
  int32_t warps_w;   // warps per (group, channels), each 32 columns x the instance's positions
  int32_t warps_ci;  // per group
  int32_t threads;
  int64_t num_blocks;

  // Shared memory: [weights, float32, [block_groups][group_co][tap][block_ci]][stages]. A stage is
  // [block_groups][chunk_co][slot][columns]. launch/ chooses its pitches, up to the limits below.
  int32_t chunk_co;
  int32_t chunks;  // stages per tile
  int32_t stages;
  int32_t slots;
  int32_t slot_q;
  int32_t slot_k;
  bool apart;
  int32_t row_step;  // rows between slots of a window
  int32_t columns;   // per row
  int32_t most_pitch;
  int32_t most_channel_pitch;
  int32_t stage_begin;  // bytes
  int32_t stage_bytes;
  int32_t shared_bytes;
};

// Returns false if the plan is illegal for the problem or exceeds 32 bits.
bool make_thin_grad_input_layout(const ConvTProblem& problem, const ThinGradInputTile& plan,
                                 ThinGradInputLayout* layout);

}  // namespace convt

namespace convt::thin {

// Kernel parameters. thin/launch.cpp fills them; they are constant for the whole grid.
struct GradInputParams : ThinGradInputLayout {
  const void* gy;      // [batch, groups * group_co, h.out, w.out], any strides
  const void* weight;  // [groups * group_ci, group_co, h.kernel, w.kernel], any strides
  void* gx;            // [batch, groups * group_ci, h.in, w.in], NCHW or channels_last
  int64_t gy_stride[4];
  int64_t weight_stride[4];
  int64_t gx_stride[4];
  SlotPitches pitches;
  SmallDivmod by_slots;
  SmallDivmod by_kernel_h;
  SmallDivmod by_tiles_w;
  SmallDivmod by_tiles_h;
  int32_t load_lanes_log2;  // log2 of the threads that copy one row
  int32_t vector;           // columns per load of a thread: 1, 2 or 4
  bool copy_vectors;        // columns are contiguous in memory
};

}  // namespace convt::thin
