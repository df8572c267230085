// The gradient of the weight by strips of pixels: the accumulators and pixels of a CTA, the order of each sum, and the
// operands in shared memory. Shared by the planners, launches and kernels of thin/ and mma_sm90a/.
//
// Pixels are positions of the input. A row of pixels is divided into strips of `strip` columns; unit_rows rows of a
// strip are a unit. Units count rows, then strips, then images. A chunk is units_per_chunk units. A CTA accumulates a
// chunk in this order into one slab. Strips and chunks depend only on the problem, so results are bitwise equal on
// every GPU.
//
// A CTA owns block_ci x block_co channels x block_kh tap rows x block_kw taps per row. A stage is up to tile_units
// units of one strip. It contains rows of both operands with the layout of global memory; rows of grad_output use the
// slots of tiling/slots.h.
#pragma once

#include <cstdint>

#include "problem/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/slots.h"

namespace convt {

inline constexpr int32_t kMinStripStages = 2, kMaxStripStages = 4;
// Shared memory before the stages: two barriers per stage, the addresses of its operands (StagePlace), the CTA's
// WeightPass, and an engine's table of warps.
inline constexpr int32_t kStripPlacesBegin = 16 * kMaxStripStages, kStripPlaceBytes = 32;
inline constexpr int32_t kStripPassBegin = kStripPlacesBegin + kMaxStripStages * kStripPlaceBytes;
inline constexpr int32_t kStripWarpsBegin = kStripPassBegin + 32;
inline constexpr int32_t kStripHeadBytes = 512;

// Base class of each engine's layout.
struct StripLayout {
  Axis h;
  Axis w;
  int32_t groups;
  int32_t group_ci;
  int32_t group_co;

  // Pixels.
  int32_t strip;
  int32_t strips;
  int32_t unit_rows;  // rows of pixels per unit
  int32_t units_of_strip;  // per image
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
  int32_t warps_ci;  // warps of a CTA, in the order: input channels, output channels, runs, tap rows
  int32_t warps_co;
  int32_t threads;
  int64_t num_blocks;

  // A stage: [block_ci][rows][columns] of the input, [block_co][slot][columns] of grad_output. launch/ chooses pitches
  // that fit this size.
  int32_t tile_units;
  int32_t stages;
  int32_t slots;
  int32_t slot_q;
  int32_t slot_k;
  bool apart;
  int32_t row_step;  // rows between slots, unless `apart`
  int32_t columns;  // of grad_output's rows
  int32_t gy_begin;  // byte offset in a stage
  int32_t stage_bytes;
  int32_t shared_bytes;
};

// The fields of a plan that determine pixels, passes and stages.
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

// Sets the layout except warps and bytes. Returns false if 32 bits cannot represent its values.
bool lay_out_strips(const ConvTProblem& problem, const StripTile& tile, StripLayout* layout);

// Sets the layout's bytes from the elements of each operand of a stage. Returns false if they far exceed shared memory.
bool lay_out_strip_stages(const ConvTProblem& problem, int64_t x_elems, int64_t gy_elems, StripLayout* layout);

// Pitches of a stage in elements. They are congruent to the strides in memory modulo 16 bytes, so that whole vectors
// can be copied at any alignment of rows.
struct StripPitches {
  int32_t x_row;
  int32_t x_channel;
  int32_t gy_slot;  // window: per slot; apart: per tap row
  int32_t gy_position;  // per row of pixels
  int32_t gy_tap;  // per tap row
  int32_t gy_channel;
};

// Whether the input's rows of a whole strip are contiguous in memory.
bool has_merged_rows(const StripLayout& layout, const ConvTProblem& problem);

StripPitches make_strip_pitches(const StripLayout& layout, const ConvTProblem& problem);

}  // namespace convt

namespace convt::tiling {

// An operand of the loader.
struct StripOperand {
  const void* elements;  // [batch, channels, rows, columns]
  int64_t stride[4];     // elements
  const void* end;       // one past the last element
};

// Kernel parameters of the strip loader (tiling/strip_loader.cuh), constant for the whole grid.
struct StripParams : StripLayout {
  StripOperand x;   // [batch, groups * group_ci, h.in, w.in], any strides
  StripOperand gy;  // [batch, groups * group_co, h.out, w.out], any strides
  float* slabs;      // [chunks][groups * group_ci, group_co, h.kernel, w.kernel], contiguous
  StripPitches pitches;
  FastDivmod by_units_of_strip;
  FastDivmod by_strips;
  FastDivmod by_x_rows;    // rows of pixels per stage
  FastDivmod by_slots;
  FastDivmod by_block_kh;
  FastDivmod by_columns_step;  // columns of grad_output per step of 32 pixels
  int32_t loaders;    // warps that copy a stage; divides the CTA's warps
  int32_t x_loaders;  // loading warps for the input
  int32_t strip_log2;  // for a strip narrower than 32
  bool bulk;         // columns of both operands are contiguous
  bool zero_borders;  // zero-fill grad_output's bulk rows where pixels of the stage read outside the tensor
  int32_t taps_w;     // columns of taps per CTA
  bool merged_rows;  // a strip's rows of the input are contiguous in memory and in a stage
};

}  // namespace convt::tiling

namespace convt {

struct Pointers;  // launch/launch.h

// Sets all parameters except how a kernel iterates over its pixels. `loaders`: warps that copy a stage.
void fill_strip_params(const ConvTProblem& problem, const StripLayout& layout, const StripPitches& pitches,
                       int32_t loaders, const Pointers& pointers, tiling::StripParams* params);

}  // namespace convt
