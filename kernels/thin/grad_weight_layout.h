// The gradient of the weight of a thin layer: which sums and pixels a CTA owns, in which order they are added, and
// where its operands lie in shared memory. One definition for the planner, launch/ and the kernel
// (thin/grad_weight.cuh).
//
// Pixels are the positions of the input. A row of pixels is cut into strips of `strip` columns; a lane of a warp takes
// every 32nd column of a strip, or, where a strip is narrower, a column of one of 32 / strip rows. Those rows are a
// unit; units count rows, then strips, then images. A chunk is units_per_chunk units: what a CTA adds up, in that
// order, and what a slab holds the sums of. Strips and chunks are functions of the problem alone: the result's bits are
// the same on every GPU.
//
// Everything else is free. A CTA owns block_ci x block_co channels x block_kh tap rows x block_runs runs of thread_kw
// taps, a warp thread_ci x thread_co channels of one tap row and run; a stage is up to tile_units units of one strip.
// Rows of both operands are staged as they are in memory. Of grad_output only rows that a tap reads are: every
// gcd(stride, dilation)-th one, or, where that is fewer, block_kh for each row of pixels (`apart`). Both put tap row k
// of row q of pixels into slot q * slot_q + k * slot_k.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"
#include "thin/grad_input_layout.h"
#include "thin/instances.h"

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
inline constexpr int32_t kMinThinWeightStages = 2, kMaxThinWeightStages = 4;
// Before the stages: two barriers for each, where its operands lie, and who the CTA and its warps are.
inline constexpr int32_t kThinWeightPlacesBegin = 16 * kMaxThinWeightStages, kThinWeightPlaceBytes = 32;
inline constexpr int32_t kThinWeightPassBegin = kThinWeightPlacesBegin + kMaxThinWeightStages * kThinWeightPlaceBytes;
inline constexpr int32_t kThinWeightWarpsBegin = kThinWeightPassBegin + 32, kThinWeightWarpBytes = 16;
inline constexpr int32_t kThinWeightHeadBytes = 512;
static_assert(kThinWeightWarpsBegin + kMaxThinWeightThreads / 32 * kThinWeightWarpBytes <= kThinWeightHeadBytes);

struct ThinGradWeightLayout {
  Axis h;
  Axis w;
  int32_t groups;
  int32_t group_ci;
  int32_t group_co;

  // Pixels.
  int32_t strip;
  int32_t strips;
  int32_t unit_rows;  // rows of pixels of a unit
  int32_t units_of_strip;  // of one image
  int32_t num_units;
  int32_t units_per_chunk;
  int32_t chunks;

  // CTAs: passes (runs, tap rows, channels, groups: fastest first), then chunks.
  int32_t block_ci;
  int32_t block_co;
  int32_t block_kh;
  int32_t block_runs;
  int32_t run_tiles;
  int32_t kh_tiles;
  int32_t co_tiles;
  int32_t ci_tiles;
  int32_t passes;
  int32_t warps_ci;  // warps of a CTA: input channels, output channels, runs, then tap rows
  int32_t warps_co;
  int32_t threads;
  int64_t num_blocks;

  // A stage: [block_ci][rows][columns] of the input, [block_co][slot][columns] of grad_output, with pitches that
  // launch/ chooses up to what fits here.
  int32_t tile_units;
  int32_t stages;
  int32_t slots;
  int32_t slot_q;
  int32_t slot_k;
  bool apart;
  int32_t row_step;  // of slots that are not apart: rows from one to the next
  int32_t columns;  // of grad_output's rows
  int32_t gy_begin;  // bytes, in a stage
  int32_t stage_bytes;
  int32_t shared_bytes;
};

// What a plan of any engine says of pixels, passes and stages.
struct WeightTile {
  int32_t strip;
  int32_t unit_rows;
  int32_t block_ci;
  int32_t block_co;
  int32_t block_kh;
  int64_t block_kw;
  int32_t units_per_chunk;
  int32_t tile_units;
  int32_t stages;
};

// Fills what of the layout follows from these, which is all but warps and bytes. False where 32 bits do not hold its
// numbers.
bool lay_out_weight_tile(const ConvTProblem& problem, const WeightTile& tile, ThinGradWeightLayout* layout);

// Fills the layout's bytes, from the elements of each operand of a stage. False where they are far beyond what fits.
bool lay_out_weight_stages(const ConvTProblem& problem, int64_t x_elems, int64_t gy_elems,
                           ThinGradWeightLayout* layout);

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_grad_weight_layout(const ConvTProblem& problem, const ThinGradWeightTile& plan,
                                  ThinGradWeightLayout* layout);

// How rows lie in a stage, in elements: congruent to the distances in memory modulo 16 bytes, so that whole vectors can
// be copied wherever a row begins.
struct ThinWeightPitches {
  int32_t x_row;
  int32_t x_channel;
  int32_t gy_slot;  // of a window; of slots apart, from a tap row to the next
  int32_t gy_position;  // from a row of pixels to the next
  int32_t gy_tap;  // from a row of taps to the next
  int32_t gy_channel;
};

// Rows of the input of a whole strip are one run in memory.
bool has_merged_rows(const ThinGradWeightLayout& layout, const ConvTProblem& problem);

ThinWeightPitches make_thin_weight_pitches(const ThinGradWeightLayout& layout, const ConvTProblem& problem);

}  // namespace convt
