// The mma engine's view of a forward problem on the axes of tiling/axis.h, and where a CTA's data lie
// in shared memory: one definition for the planner (is it legal? does it fit?), launch/ and the kernel. Host and device
// read it, host makes it.
//
// A *column* of the products is a result channel in one phase. Columns whose phases have the same taps are a *class*;
// a class is padded to whole *column tiles* of sixteen, so that a tap is multiplied into exactly the tiles that have
// it: no zero weight ever meets an element of the source.
#pragma once

#include "mma_sm90a/instances.h"
#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

// The mma engine's tile.
struct MmaTile {
  int32_t instance;  // index into kMmaInstances
  int32_t threads;  // 128 or 256
  int32_t tile_h;  // positions
  int32_t tile_w;
  int32_t block_co;  // result channels of a pass
  bool split_phases;  // a pass owns one H phase instead of all
  int32_t chunk_steps;  // steps of K in a stage, 32 bytes of channels each
  int32_t raw_slots;  // stages on their way from memory
  int32_t blocks_per_pass;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_co", block_co);
    field("split_phases", split_phases);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("chunk_steps", chunk_steps);
    field("raw_slots", raw_slots);
    field("blocks_per_pass", blocks_per_pass);
  }
};

// The tile of whole rows.
struct MmaRowsTile {
  int32_t instance;  // index into kMmaRowsInstances
  int32_t warps;  // that multiply
  int32_t tile_h;  // rows of positions
  int32_t block_co;  // result channels of a pass
  int32_t slots;  // staged tiles
  int32_t padding;  // sectors behind a staged channel, so that channels meet different banks
  bool interleaved;  // neighbouring tiles are of different CTAs of a pass, not of the same
  int32_t blocks_per_pass;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_co", block_co);
    field("tile_h", tile_h);
    field("warps", warps);
    field("slots", slots);
    field("padding", padding);
    field("interleaved", interleaved);
    field("blocks_per_pass", blocks_per_pass);
  }
};

inline constexpr int32_t kMaxMmaThreads = 256;
inline constexpr int32_t kMaxMmaClasses = 8;  // of an axis
inline constexpr int32_t kMmaColumns = 16;  // of a column tile
inline constexpr int32_t kMmaPositions = 8;  // of a position tile
inline constexpr int32_t kMostMmaBiasBytes = 4096;  // of a channel's row of biases
inline constexpr int32_t kMmaLoadChannels = 4;  // that a thread copies at one place

inline constexpr int32_t kMaxMmaRowsWarps = 16;  // of a CTA
inline constexpr int32_t kMmaRowsStorers = 2;  // of these

// Of tiles of whole rows: how many groups of loads are on their way together.
CONVT_HOST_DEVICE constexpr int32_t mma_rows_batch(int32_t element_bytes) { return element_bytes == 4 ? 4 : 3; }

inline constexpr int32_t kMmaRowsRun = 2;  // taps of a run, at most

// Phases of an axis that have the same taps.
struct MmaClass {
  uint32_t phases;
  uint32_t taps;
};

// Everything about a launch that follows from the problem, the plan and the instance, but the pointers.
struct MmaLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int64_t weight_stride[4];  // from one input channel, output channel, kh, kw to the next
  int64_t weight_group_stride;
  PhaseAxis h, w;
  int32_t groups, group_ci, group_co;

  // Tiles: tile_h x tile_w positions of one image. A pass is what else tells CTAs apart: group, channels, H phase.
  int32_t num_tiles, tiles_h, tiles_w, tile_h, tile_w;
  int32_t positions;  // tile_h * tile_w
  int32_t passes, blocks_per_pass;
  int32_t split_phases;  // 1, or out_stride: a pass owns one H phase
  int32_t co_tiles, block_co;

  // Columns of a pass. With split phases its H phase is the one class of that axis.
  int32_t classes_h, classes_w;
  MmaClass class_h[kMaxMmaClasses];
  MmaClass class_w[kMaxMmaClasses];
  int32_t column_tiles;  // whole units of the instance's
  int32_t column_units;  // units of the instance's column tiles
  int32_t position_units;
  int32_t taps;  // h.num_taps * w.num_taps

  // Source tile: [channel][rows][pitch] elements as they are in memory (raw), then [plane][rows][pitch][8 bytes of
  // channels] (operand). A position (row, column) lies at row * pitch + column + column_begin; tap t is offset[t] -
  // least_offset further along its axis.
  int32_t rows, pitch;
  int32_t vector;  // elements of a copy: 16 bytes, or one
  int32_t vectors;  // of a row
  int32_t places;  // vectors of a channel
  int32_t column_offset;  // source column of raw column 0, from the tile's first position
  int32_t column_begin;  // raw column that position 0 reads at the least offset
  int32_t raw_channel;  // elements
  int32_t plane;  // units of 8 bytes
  int32_t chunk_ci;  // channels of a stage
  int32_t chunk_steps;  // steps of K in a stage
  int32_t num_chunks;
  int32_t steps;  // of K, of a tap
  int32_t raw_slots;
  int32_t raw_bytes;  // of a slot

  // Staged results: elements. Only filled H phases are staged, in their order.
  int32_t result_vector;  // elements of 16 bytes
  int32_t stage_channel, stage_row, stage_phase;
  bool aligned_runs;  // every row and channel of the result begins on a sector of 32 bytes like the first
  bool joined_rows;  // a tile's rows of a channel follow each other in memory
  int32_t bias_bytes;  // of a channel's row of biases, for rows without taps; 0 where there are none

  // Shared memory, bytes from its beginning: raw slots, operand, staged results, weights, biases, tables.
  int32_t operand_begin, stage_begin, weight_begin, bias_begin, column_begin_bytes, position_begin, run_begin;
  int32_t step_begin;

  int32_t threads, warps;
  int32_t loaders;  // threads that load and convert: with one chunk all but those of the last warp, which alone stores
  SmallDivmod by_tiles_w, by_tiles_h, by_vectors, by_places, by_plane_quads, by_tile_w, by_column_tiles, by_chunk_steps,
      by_taps;

  // Of tiles of whole rows alone, which have no raw slots, operand planes and staged rows.
  int32_t units_w;  // units of positions of a row
  int32_t runs_w;  // of taps along W, each one column before the last: what one group of loads serves
  int32_t groups_of_steps;  // of a unit: rows of taps, steps of K of a tap, runs
  bool interleaved;
  int32_t units;  // of a tile, columns and positions
  int32_t slots;  // staged tiles
  int32_t slot_elements;
  int32_t row_step;  // elements from a position row to the next, in a staged channel as in memory
  int32_t barriers_begin, group_begin;
  SmallDivmod by_units, by_unit_columns, by_units_w, by_slots;

  int32_t shared_bytes;
  int64_t num_blocks;
};

CONVT_HOST_DEVICE inline int32_t count_ones(uint32_t bits) {
  int32_t count = 0;
  for (; bits != 0; bits &= bits - 1) ++count;
  return count;
}

// Number n of the bits that are set.
CONVT_HOST_DEVICE inline int32_t nth_one(uint32_t bits, int32_t n) {
  for (; n > 0; --n) bits &= bits - 1;
  return count_ones((bits & (0u - bits)) - 1);
}

// A column of a pass: classes of H phases, then of W phases; in a class channels, then H phases, then W phases.
struct MmaColumn {
  int32_t co;  // within the pass; block_co and more: this column is padding
  int32_t phase_h;  // of the result
  int32_t phase_w;
  uint32_t taps_h;  // those of its class
  uint32_t taps_w;
};

// pass_phase_h: the H phase of a pass that owns one.
CONVT_HOST_DEVICE inline MmaColumn mma_column(const MmaLayout& layout, int32_t pass_phase_h, int32_t index) {
  for (int32_t i = 0; i < layout.classes_h; ++i) {
    MmaClass h = layout.class_h[i];
    if (layout.split_phases > 1) {
      if ((h.phases >> pass_phase_h & 1) == 0) continue;
      h.phases = 1u << pass_phase_h;
    }
    const int32_t phases_h = count_ones(h.phases);
    for (int32_t j = 0; j < layout.classes_w; ++j) {
      const MmaClass w = layout.class_w[j];
      const int32_t phases_w = count_ones(w.phases);
      const int32_t columns = layout.block_co * phases_h * phases_w;
      const int32_t padded = (columns + kMmaColumns - 1) / kMmaColumns * kMmaColumns;
      if (index < padded) {
        const int32_t phase = index / phases_w;
        return MmaColumn{phase / phases_h, nth_one(h.phases, phase % phases_h), nth_one(w.phases, index % phases_w),
                         h.taps, w.taps};
      }
      index -= padded;
    }
  }
  return MmaColumn{layout.block_co, 0, 0, 0, 0};
}

// Staged element of a channel, position row and H phase, which has taps, at staged column 0. filled_h: which of the
// pass's H phases have taps.
CONVT_HOST_DEVICE inline int32_t mma_staged_row(const MmaLayout& layout, uint32_t filled_h, int32_t co, int32_t row,
                                                int32_t phase_h) {
  const int32_t number = count_ones(filled_h & ((1u << phase_h) - 1));
  const auto congruent = static_cast<int32_t>(phase_h * layout.result_stride[2] & (layout.result_vector - 1));
  return co * layout.stage_channel + row * layout.stage_row + number * layout.stage_phase + congruent;
}

// A run of taps along W.
struct MmaRun {
  int32_t first, taps;
};

// Run number n.
CONVT_HOST_DEVICE inline MmaRun mma_run(const PhaseAxis& w, int32_t n) {
  MmaRun run{0, 0};
  for (int32_t number = 0;; ++number) {
    run.first += run.taps;
    for (run.taps = 1; run.taps < kMmaRowsRun && run.first + run.taps < w.num_taps; ++run.taps) {
      if (w.offset[run.first + run.taps] != w.offset[run.first] - run.taps) break;
    }
    if (number == n) return run;
  }
}

// The layout of a plan, or false where it is illegal. Does not ask whether the device has so much shared memory.
bool make_mma_layout(const ConvTProblem& problem, const MmaTile& plan, MmaLayout* layout);
bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaLayout* layout);

// make_mma_layout() in two steps for a search: what follows from the problem alone, then the rest.
bool begin_mma_layout(const ConvTProblem& problem, MmaLayout* layout);
bool finish_mma_layout(const ConvTProblem& problem, const MmaTile& plan, MmaLayout* layout);

// Changes the layout for a source that does not begin on a vector: its places are filled element by element.
void copy_elements(MmaLayout* layout);

}  // namespace convt

namespace convt::mma_sm90a {

// What a kernel of the forward pass is launched with, constant for the whole grid.
struct Params : MmaLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;  // [groups * group_co], contiguous, or null
  void* result;  // [batch, groups * group_co, h.out, w.out], dense, NCHW, on a multiple of 16 bytes
};

}  // namespace convt::mma_sm90a
