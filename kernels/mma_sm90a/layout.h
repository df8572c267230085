// Plans of the forward families, mma and mma_rows: the problem on the axes of tiling/axis.h, and the layout of a CTA's
// shared memory. The planner, launch/ and the kernels share it. The host computes it; host and device read it.
//
// A *column* of the products is a result channel in one phase. Columns whose phases have the same taps form a *class*.
// A class is padded to whole *column tiles* of sixteen columns. A tap is multiplied only into the column tiles whose
// class contains it, so that no zero weight is multiplied by a source element.
#pragma once

#include "mma_sm90a/instances.h"
#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

struct MmaTile {
  int32_t instance;  // index into kMmaInstances
  int32_t threads;  // 128 or 256
  int32_t tile_h;  // positions
  int32_t tile_w;
  int32_t block_co;  // result channels per pass
  bool split_phases;  // a pass computes one H phase instead of all
  int32_t chunk_steps;  // steps of K per stage, 32 bytes of channels each
  int32_t raw_slots;  // pipeline stages of the source
  int32_t blocks_per_pass;  // CTAs

  // Visits the tile's parameters, for plan comparison and JSON.
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

// Tile of the mma_rows family: whole rows of the result.
struct MmaRowsTile {
  int32_t instance;  // index into kMmaRowsInstances
  int32_t warps;  // consumer warps
  int32_t tile_h;  // rows of positions
  int32_t block_co;  // result channels per pass
  int32_t slots;  // result tiles in shared memory
  int32_t padding;  // sectors after each channel of a slot, against bank conflicts
  bool interleaved;  // adjacent tiles belong to different CTAs of a pass; otherwise to the same CTA
  int32_t blocks_per_pass;  // CTAs

  // Visits the tile's parameters, for plan comparison and JSON.
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
inline constexpr int32_t kMaxMmaClasses = 8;  // per axis
inline constexpr int32_t kMmaColumns = 16;  // per column tile
inline constexpr int32_t kMmaPositions = 8;  // per position tile
inline constexpr int32_t kMostMmaBiasBytes = 4096;  // bytes of repeated bias per channel
inline constexpr int32_t kMmaLoadChannels = 4;  // channels that a thread copies at one source position

inline constexpr int32_t kMaxMmaRowsWarps = 16;  // per CTA
inline constexpr int32_t kMmaRowsStorers = 2;  // warps among these that store

// mma_rows: groups of loads in flight per warp.
CONVT_HOST_DEVICE constexpr int32_t mma_rows_batch(int32_t element_bytes) { return element_bytes == 4 ? 4 : 3; }

inline constexpr int32_t kMmaRowsRun = 2;  // maximum taps per run

// Phases of an axis with the same taps, as bit masks.
struct MmaClass {
  uint32_t phases;
  uint32_t taps;
};

// Launch parameters that the problem, the plan and the instance determine: all except pointers.
struct MmaLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int64_t weight_stride[4];  // of input channel, output channel, kh, kw
  int64_t weight_group_stride;
  PhaseAxis h, w;
  int32_t groups, group_ci, group_co;

  // Tiles: tile_h x tile_w positions of one image. A pass is a group, its channels and, with split phases, an H phase.
  int32_t num_tiles, tiles_h, tiles_w, tile_h, tile_w;
  int32_t positions;  // tile_h * tile_w
  int32_t passes, blocks_per_pass;
  int32_t split_phases;  // 1, or out_stride if a pass computes one H phase
  int32_t co_tiles, block_co;

  // Columns of a pass. With split phases its H phase is the only class along H.
  int32_t classes_h, classes_w;
  MmaClass class_h[kMaxMmaClasses];
  MmaClass class_w[kMaxMmaClasses];
  int32_t column_tiles;  // padded to whole units
  int32_t column_units;  // units along columns
  int32_t position_units;
  int32_t taps;  // h.num_taps * w.num_taps

  // Source tile in shared memory: first [channel][rows][pitch] elements, copied unchanged (raw), then
  // [plane][rows][pitch][8 bytes of channels] (operand). Position (row, column) has index row * pitch + column +
  // column_begin. Tap t adds offset[t] - least_offset along its axis.
  int32_t rows, pitch;
  int32_t vector;  // elements per copy: 16 bytes, or 1
  int32_t vectors;  // per row
  int32_t places;  // vectors per channel
  int32_t column_offset;  // source column of raw column 0, from the tile's first position
  int32_t column_begin;  // raw column that position 0 reads at the least offset
  int32_t raw_channel;  // elements per raw channel
  int32_t plane;  // pitch of a plane in units of 8 bytes
  int32_t chunk_ci;  // channels per stage
  int32_t chunk_steps;  // steps of K per stage
  int32_t num_chunks;
  int32_t steps;  // steps of K per tap
  int32_t raw_slots;
  int32_t raw_bytes;  // per slot

  // Results in shared memory, in elements. Only H phases with taps are stored there, in order.
  int32_t result_vector;  // elements in 16 bytes
  int32_t stage_channel, stage_row, stage_phase;  // pitches
  bool aligned_runs;  // all rows and channels of the result have the same offset in a 32-byte sector
  bool joined_rows;  // a tile's rows of a channel are contiguous in memory
  int32_t bias_bytes;  // bytes of repeated bias per channel, for rows without taps; 0 if there are none

  // Byte offsets in shared memory: raw slots, operand, results, weights, biases, tables.
  int32_t operand_begin, stage_begin, weight_begin, bias_begin, column_begin_bytes, position_begin, run_begin;
  int32_t step_begin;

  int32_t threads, warps;
  int32_t loaders;  // threads that load and convert: all, or with one chunk all except the last warp, which stores
  SmallDivmod by_tiles_w, by_tiles_h, by_vectors, by_places, by_plane_quads, by_tile_w, by_column_tiles, by_chunk_steps,
      by_taps;

  // mma_rows only. This family has no raw slots, operand planes or result rows.
  int32_t units_w;  // position units per row
  int32_t runs_w;  // runs of taps along W; each tap reads one column before the previous one
  int32_t groups_of_steps;  // groups of loads per unit: rows of taps x steps of K per tap x runs
  bool interleaved;
  int32_t units;  // per tile: column units x position units
  int32_t slots;  // result tiles in shared memory
  int32_t slot_elements;
  int32_t row_step;  // elements between position rows, in a slot and in memory
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

// Index of set bit number n.
CONVT_HOST_DEVICE inline int32_t nth_one(uint32_t bits, int32_t n) {
  for (; n > 0; --n) bits &= bits - 1;
  return count_ones((bits & (0u - bits)) - 1);
}

// A column of a pass. Order, slowest first: classes along H, classes along W, channels, H phases, W phases.
struct MmaColumn {
  int32_t co;  // within the pass; block_co or more: padding
  int32_t phase_h;  // of the result
  int32_t phase_w;
  uint32_t taps_h;  // taps of its class, as a bit mask
  uint32_t taps_w;
};

// Column number `index`. `pass_phase_h` is the H phase of the pass with split phases.
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

// Index in the shared-memory results of column 0 of a channel, position row and H phase. The phase must have taps.
// `filled_h` is the mask of the pass's H phases with taps.
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

// Compute the layout of a plan. Return false if it is illegal. Do not check shared memory against the device.
bool make_mma_layout(const ConvTProblem& problem, const MmaTile& plan, MmaLayout* layout);
bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaLayout* layout);

// make_mma_layout() in two steps, for searches: the fields that depend only on the problem, then the others.
bool begin_mma_layout(const ConvTProblem& problem, MmaLayout* layout);
bool finish_mma_layout(const ConvTProblem& problem, const MmaTile& plan, MmaLayout* layout);

// Changes the layout to copy single elements, for a source that is not aligned to vectors.
void copy_elements(MmaLayout* layout);

}  // namespace convt

namespace convt::mma_sm90a {

// Parameters of the forward kernels, constant for the whole grid.
struct Params : MmaLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;  // [groups * group_co], contiguous, or null
  void* result;  // [batch, groups * group_co, h.out, w.out], dense, NCHW, aligned to 16 bytes
};

}  // namespace convt::mma_sm90a
