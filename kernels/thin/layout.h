// Layout of a forward problem in the thin engine: tile geometry and shared memory of a CTA. The planner (is it legal?
// does it fit?), launch/ and the kernel share this definition. The host computes it. tiling/axis.h defines positions.
// The gradients have separate layouts.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

// Tile of the thin engine.
struct ThinTile {
  int32_t instance;  // index into kThinInstances
  int32_t tile_h;  // positions
  int32_t tile_w;
  int32_t tiles_per_block;
  int32_t block_co;      // result channels per pass and group
  int32_t block_groups;  // groups per pass; more than 1 only with all channels of each
  bool split_phases;     // a pass owns one H phase instead of all
  int32_t chunk_ci;      // source channels in shared memory at a time

  CONVT_TILE_FIELDS(block_co, block_groups, tile_h, tile_w, tiles_per_block, split_phases, chunk_ci)
};

inline constexpr int32_t kMaxThinWarps = 8;  // per CTA
inline constexpr int32_t kMaxThinChannels = 256;  // per pass

// How a source channel's plane is copied to shared memory.
enum class ThinLoad : int32_t {
  kVectors,  // columns are contiguous and aligned: copies of vector_bytes
  kElements,  // element by element, lanes along columns
  kChannels,  // element by element, lanes along channels (channels_last)
};

// Launch parameters that follow from the problem, the plan and the instance. Excludes pointers.
struct ThinLayout : ChannelGroups {
  PhaseAxis h, w;

  // Tiles: tile_h x tile_w positions of one image. A pass is the rest of a CTA's work: groups, channels, H phase.
  int32_t num_tiles;
  int32_t tiles_h;
  int32_t tiles_w;
  int32_t tile_h;
  int32_t tile_w;
  int32_t tiles_per_block;
  int32_t passes;
  int32_t phase_splits;  // 1: a pass owns all H phases; otherwise out_stride passes own one phase each
  int32_t co_tiles;
  int32_t block_co;  // result channels per pass and group
  int32_t block_groups;  // groups per pass

  // A thread accumulates kOutputs of the pass's virtual outputs (channel, phase) at kPositions positions.
  int32_t warps_w;  // warps per (group, block of virtual outputs), each with different positions
  int32_t output_blocks;  // blocks of kOutputs virtual outputs
  int32_t mixed_quads;  // every phase has every tap: a quad of virtual outputs may mix phases
  int32_t all_taps;  // every block of virtual outputs has every tap
  int32_t outputs;  // virtual outputs per pass and group, in whole blocks
  int32_t taps;  // tap rows * tap columns

  // Shared memory, byte offsets: [source, then staged results][weights][tables].
  int32_t weight_begin;
  int32_t output_begin;
  int32_t bias_begin;
  int32_t step_begin;
  int32_t quad_begin;
  int32_t outside_begin;
  int32_t position_begin;
  // Source tile in elements: [chunk_ci * block_groups][rows][pitch]. Position (row, column) is at row * pitch + column;
  // a tap adds tap_row + tap_column.
  int32_t chunk_ci;
  int32_t rows;  // source rows of the tile
  int32_t columns;
  int32_t row_offset;  // offset of the first source row from the first position
  int32_t column_offset;
  int32_t pitch;
  int32_t channel_pitch;
  ThinLoad load_mode;
  int32_t vector_bytes;
  int32_t load_lanes_log2;  // lanes along a row, then channels, then rows
  int32_t load_channels_log2;
  int32_t tap_row[kMaxAxisTaps];
  int32_t tap_column[kMaxAxisTaps];
  // Staged results: strides in elements.
  int32_t stage_channel;
  int32_t stage_row;  // stride between position rows
  int32_t stage_phase;  // stride between H phases
  int32_t stage_column;
  int32_t store_vector;  // elements per 16-byte store, or 1
  int32_t store_lanes_log2;  // lanes along a run, then rows, then channels (channels_last: columns, then rows)
  int32_t store_rows_log2;
  bool channels_last_result;
  bool aligned_runs;  // all rows and channels of the result have the same alignment modulo a vector

  SmallDivmod by_tiles_w, by_tiles_h, by_columns, by_phases_h, by_pitch, by_weights, by_group_ci;

  int32_t threads;
  int32_t shared_bytes;
  int64_t num_blocks;
};

// Computes the layout of a plan for an instance of `outputs` virtual outputs x `positions` per thread. Returns false if
// the plan is illegal. Does not compare shared memory with the device's limit.
bool make_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                      ThinLayout* layout);

// The layout in two steps for a search, without the SmallDivmod members: first the fields that depend on the problem
// only, then the rest.
bool begin_thin_layout(const ConvTProblem& problem, ThinLayout* layout);
bool finish_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                        ThinLayout* layout);

}  // namespace convt

namespace convt::thin {

// Kernel parameters. thin/launch.cpp fills them; they are constant for the whole grid.
struct Params : ThinLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;    // [groups * group_co], contiguous, or null
  void* result;        // [batch, groups * group_co, h.out, w.out], NCHW or channels_last
};

}  // namespace convt::thin
