// What the thin engine makes of a forward problem, and where a CTA's data lie in shared memory: one definition for the
// planner (is it legal? does it fit?), launch/ and the kernel. Host and device read it, host makes it.
// Positions are those of tiling/axis.h. The gradients have layouts of their own.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

// The thin engine's tile.
struct ThinTile {
  int32_t instance;  // index into kThinInstances
  int32_t tile_h;  // positions
  int32_t tile_w;
  int32_t tiles_per_block;
  int32_t block_co;      // result channels of a pass, per group
  int32_t block_groups;  // groups of a pass; more than 1 only with all channels of each
  bool split_phases;     // a pass owns one H phase instead of all
  int32_t chunk_ci;      // channels of the source in shared memory at a time

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_co", block_co);
    field("block_groups", block_groups);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("tiles_per_block", tiles_per_block);
    field("split_phases", split_phases);
    field("chunk_ci", chunk_ci);
  }
};

inline constexpr int32_t kMaxThinWarps = 8;  // of a CTA
inline constexpr int32_t kMaxThinChannels = 256;  // of a pass

// How a channel's plane of the source comes into shared memory.
enum class ThinLoad : int32_t {
  kVectors,  // columns are neighbours in memory and aligned: copies of vector_bytes
  kElements,  // element by element, lanes along columns
  kChannels,  // element by element, lanes along channels (channels_last)
};

// Everything about a launch that follows from the problem, the plan and the instance, but the pointers.
struct ThinLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int64_t weight_stride[4];  // from one summed channel, result channel, kh, kw to the next
  int64_t weight_group_stride;
  PhaseAxis h;
  PhaseAxis w;
  int32_t groups;
  int32_t group_ci;  // channels that are summed, of a group
  int32_t group_co;  // channels of the result, of a group

  // Tiles: tile_h x tile_w positions of one image. A pass is what else tells CTAs apart: groups, channels, H phase.
  int32_t num_tiles;
  int32_t tiles_h;
  int32_t tiles_w;
  int32_t tile_h;
  int32_t tile_w;
  int32_t tiles_per_block;
  int32_t passes;
  int32_t phase_splits;  // 1: a pass owns all H phases; otherwise out_stride passes of one each
  int32_t co_tiles;
  int32_t block_co;  // result channels of a pass, per group
  int32_t block_groups;  // groups of a pass

  // A thread's sums: kOutputs of the pass's virtual outputs (channel, phase) at kPositions positions.
  int32_t warps_w;  // warps that share a (group, block of virtual outputs), each with its own positions
  int32_t output_blocks;  // blocks of kOutputs virtual outputs
  int32_t mixed_quads;  // every phase has every tap: four virtual outputs may be of different phases
  int32_t all_taps;  // no block of virtual outputs lacks a tap
  int32_t outputs;  // virtual outputs of a pass and group, whole blocks
  int32_t taps;  // rows * columns of them

  // Shared memory, bytes from its beginning: [source, then staged results][weights][tables].
  int32_t weight_begin;
  int32_t output_begin;
  int32_t bias_begin;
  int32_t step_begin;
  int32_t quad_begin;
  int32_t outside_begin;
  int32_t position_begin;
  // Source tile: elements, [chunk_ci * block_groups][rows][pitch]. A position (row, column) lies at row * pitch +
  // column; a tap adds tap_row + tap_column.
  int32_t chunk_ci;
  int32_t rows;  // of the source
  int32_t columns;
  int32_t row_offset;  // first of them, from the first position on
  int32_t column_offset;
  int32_t pitch;
  int32_t channel_pitch;
  ThinLoad load_mode;
  int32_t vector_bytes;
  int32_t load_lanes_log2;  // lanes along a row, then channels, then rows
  int32_t load_channels_log2;
  int32_t tap_row[kMaxAxisTaps];
  int32_t tap_column[kMaxAxisTaps];
  // Staged results: elements.
  int32_t stage_channel;
  int32_t stage_row;  // from one position row to the next
  int32_t stage_phase;  // from one H phase to the next
  int32_t stage_column;
  int32_t store_vector;  // elements of a 16-byte store, or 1
  int32_t store_lanes_log2;  // lanes along a run, then rows, then channels (channels_last: columns, then rows)
  int32_t store_rows_log2;
  bool channels_last_result;
  bool aligned_runs;  // every row and channel of the result begins on a vector like the first

  SmallDivmod by_tiles_w, by_tiles_h, by_columns, by_phases_h, by_pitch, by_weights, by_group_ci;

  int32_t threads;
  int32_t shared_bytes;
  int64_t num_blocks;
};

// The layout of a plan run by an instance of `outputs` virtual outputs x `positions` a thread, or false where it is
// illegal. Does not ask whether the device has so much shared memory.
bool make_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                      ThinLayout* layout);

// The layout in two steps for a search, without reciprocals: what follows from the problem alone, then the rest.
bool begin_thin_layout(const ConvTProblem& problem, ThinLayout* layout);
bool finish_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                        ThinLayout* layout);

}  // namespace convt

namespace convt::thin {

// What a kernel is launched with. Filled by thin/launch.cpp, constant for the whole grid.
struct Params : ThinLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;    // [groups * group_co], contiguous, or null
  void* result;        // [batch, groups * group_co, h.out, w.out], NCHW or channels_last
};

}  // namespace convt::thin
