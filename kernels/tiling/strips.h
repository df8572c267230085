// The gradient of the weight in strips of pixels: the accumulators and pixels of a CTA, the order of each sum, and the
// operands in shared memory. One definition for the planners, launches and kernels of thin/ and
// mma_sm90a/.
//
// Pixels are the positions of the input. A row of pixels is cut into strips of `strip` columns; unit_rows rows of a
// strip are a unit. Units count rows, then strips, then images. A chunk is units_per_chunk units. A CTA
// accumulates a chunk in this order into one slab. Strips and chunks depend on the problem alone, so the result's bits
// are the same on every GPU.
//
// A CTA owns block_ci x block_co channels x block_kh tap rows x block_kw taps of each; a stage
// is up to tile_units units of one strip. Rows of both operands are staged as they are in memory, those of grad_output
// in the slots of tiling/slots.h.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "tiling/slots.h"

namespace convt {

inline constexpr int32_t kMinStripStages = 2, kMaxStripStages = 4;
// Shared memory before the stages: two barriers per stage, the places of its operands (StagePlace), the CTA's
// WeightPass, and an engine's table of warps.
inline constexpr int32_t kStripPlacesBegin = 16 * kMaxStripStages, kStripPlaceBytes = 32;
inline constexpr int32_t kStripPassBegin = kStripPlacesBegin + kMaxStripStages * kStripPlaceBytes;
inline constexpr int32_t kStripWarpsBegin = kStripPassBegin + 32;
inline constexpr int32_t kStripHeadBytes = 512;

// The base of each engine's layout.
struct StripLayout {
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

// The numbers of a plan that determine pixels, passes and stages.
struct StripTile {
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

// Fills the layout except warps and bytes. Returns false if 32 bits cannot represent its numbers.
bool lay_out_strips(const ConvTProblem& problem, const StripTile& tile, StripLayout* layout);

// Fills the layout's bytes from the number of elements of each operand of a stage. Returns false if they far exceed
// shared memory.
bool lay_out_strip_stages(const ConvTProblem& problem, int64_t x_elems, int64_t gy_elems, StripLayout* layout);

// How rows lie in a stage, in elements: congruent to the distances in memory modulo 16 bytes, so that whole vectors can
// be copied wherever a row begins.
struct StripPitches {
  int32_t x_row;
  int32_t x_channel;
  int32_t gy_slot;  // of a window; of slots apart, from a tap row to the next
  int32_t gy_position;  // from a row of pixels to the next
  int32_t gy_tap;  // from a row of taps to the next
  int32_t gy_channel;
};

// Rows of the input of a whole strip are one run in memory.
bool has_merged_rows(const StripLayout& layout, const ConvTProblem& problem);

StripPitches make_strip_pitches(const StripLayout& layout, const ConvTProblem& problem);

}  // namespace convt
