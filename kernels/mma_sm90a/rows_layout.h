// Plans of the mma_rows family (forward pass): the problem on the axes of tiling/axis.h, and the layout of a CTA's
// shared memory. The planner, launch/ and the kernels share it. The host computes it; host and device read it.
//
// A *column* of the products is a result channel in one phase. Columns whose phases have the same taps form a *class*.
// A class is padded to whole *column tiles* of sixteen columns. A tap is multiplied only into the column tiles whose
// class contains it, so that no zero weight is multiplied by a source element.
#pragma once

#include "mma_sm90a/instances.h"
#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

// Whole rows of the result.
struct MmaRowsTile {
  int32_t instance;  // index into kMmaRowsInstances
  int32_t warps;  // consumer warps
  int32_t tile_h;  // rows of positions
  int32_t block_co;  // result channels per pass
  int32_t slots;  // result tiles in shared memory
  int32_t padding;  // sectors after each channel of a slot, against bank conflicts
  bool interleaved;  // adjacent tiles belong to different CTAs of a pass; otherwise to the same CTA
  int32_t blocks_per_pass;  // CTAs

  CONVT_TILE_FIELDS(block_co, tile_h, warps, slots, padding, interleaved, blocks_per_pass)
};

inline constexpr int32_t kMaxMmaClasses = 8;  // per axis
inline constexpr int32_t kMaxMmaRowsWarps = 16;  // per CTA
inline constexpr int32_t kMmaRowsStorers = 2;  // warps among these that store

// Groups of loads in flight per warp.
CONVT_HOST_DEVICE constexpr int32_t mma_rows_batch(int32_t element_bytes) { return element_bytes == 4 ? 4 : 3; }

inline constexpr int32_t kMmaRowsRun = 2;  // maximum taps per run

// Phases of an axis with the same taps, as bit masks.
struct MmaClass {
  uint32_t phases;
  uint32_t taps;
};

// Launch parameters that the problem, the plan and the instance determine: all except pointers.
struct MmaRowsLayout : ChannelGroups {
  PhaseAxis h, w;

  // Tiles: tile_h rows of positions of one image. A pass is a group and its channels.
  int32_t num_tiles, tiles_h, tiles_w, tile_h, tile_w;
  int32_t passes, blocks_per_pass;
  int32_t co_tiles, block_co;

  // Columns of a pass.
  int32_t classes_h, classes_w;
  MmaClass class_h[kMaxMmaClasses];
  MmaClass class_w[kMaxMmaClasses];
  int32_t column_tiles;  // padded to whole units
  int32_t column_units;  // units along columns
  int32_t position_units;
  int32_t taps;  // h.num_taps * w.num_taps
  int32_t steps;  // steps of K per tap

  int32_t vector;  // source elements per load: 4, or 1
  int32_t units_w;  // position units per row
  int32_t runs_w;  // runs of taps along W; each tap reads one column before the previous one
  int32_t groups_of_steps;  // groups of loads per unit: rows of taps x steps of K per tap x runs
  bool interleaved;
  int32_t units;  // per tile: column units x position units

  // Results in shared memory, in elements.
  int32_t slots;  // result tiles
  int32_t slot_elements;
  int32_t result_vector;  // elements in a sector of 32 bytes
  int32_t stage_channel;  // pitch
  int32_t row_step;  // elements between position rows, in a slot and in memory

  // Byte offsets in shared memory, after the slots.
  int32_t weight_begin, column_begin_bytes, step_begin, group_begin, barriers_begin;

  int32_t threads, warps;
  SmallDivmod by_tiles_w, by_tiles_h, by_column_tiles, by_steps, by_units, by_unit_columns, by_units_w, by_slots;

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

// Column number `index`.
CONVT_HOST_DEVICE inline MmaColumn mma_column(const MmaRowsLayout& layout, int32_t index) {
  for (int32_t i = 0; i < layout.classes_h; ++i) {
    const MmaClass h = layout.class_h[i];
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

// Computes the layout of a plan. Returns false if it is illegal. Does not check shared memory against the device.
bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaRowsLayout* layout);

}  // namespace convt

namespace convt::mma_sm90a {

// Parameters of the forward kernels, constant for the whole grid.
struct Params : MmaRowsLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;  // [groups * group_co], contiguous, or null
  void* result;  // [batch, groups * group_co, h.out, w.out], dense, NCHW, aligned to 16 bytes
};

}  // namespace convt::mma_sm90a
