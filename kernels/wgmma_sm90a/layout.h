// Plans of the wgmma engine (wgmma_sm90a/): which tiles, how deep the pipelines, and where things lie.
// Called by: plan/families.h, wgmma_sm90a/launch.cpp, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// How the blocks of 64 positions that one matrix product takes lie in a tile of the wgmma engine.
enum class BlockShape : int32_t {
  kLines,    // 64 neighbours of a row
  kSquares,  // 8 rows of 8 neighbours
  kFlat,  // 64 neighbours of the operand plane, from row to row and image to image; halo positions are computed too
};

// The wgmma engine's tile.
struct WgmmaTile {
  int32_t instance;  // index into kWgmmaInstances
  int32_t block_n;  // result channels of a tile
  int32_t split_phases;  // W phases of a tile: 1, 2 or 4
  BlockShape shape;
  int32_t blocks;  // of a tile, for each W phase
  int32_t tile_n, tile_h, tile_w;
  int32_t rows, pitch;  // of a window: rows, and positions of a row
  int32_t plane_positions;
  bool by_channels;  // channels are neighbours in memory: the source goes straight into operand slots
  int32_t k_steps;  // steps of K in a stage
  int32_t num_chunks;  // stages
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t raw_lines, raw_pitch;  // of a channel in a raw slot: window rows, and elements of a row
  int32_t raw_slots, raw_bytes, raw_channel_bytes;
  int32_t raw_begin, weights_begin, staged_begin, lists_begin, barriers_begin;  // in shared memory
  int32_t staged_stride;  // floats, from one staged channel to the next
  int32_t num_tiles;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_n", block_n);
    field("split_phases", split_phases);
    constexpr const char* kShapes[] = {"lines", "squares", "flat"};
    field("shape", kShapes[static_cast<int32_t>(shape)]);
    field("blocks", blocks);
    field("tile_n", tile_n);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("num_tiles", num_tiles);
    field("k_steps", k_steps);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
    field("slot_taps", slot_taps);
  }
};

// Stages of the source that are on their way to or in shared memory, before they are converted: 3, or 2 where those do
// not fit.
inline constexpr int32_t kRawSlots = 3;
// Stages that are on their way straight to operand slots.
inline constexpr int32_t kDirectAhead = 2;

inline bool split_operands(const ConvTProblem& problem) { return problem.precision == Precision::kTf32x3; }

// The columns of the source that a window row of a tile of `pitch` positions reads, all residues together, from
// `first` on, counted from the tile's corner.
struct SourceColumns {
  int32_t first, count;
};
SourceColumns source_columns(const TapProgram& program, int32_t pitch);

// Every row of the source begins on 16 bytes, and so do all windows: raw rows are rows of an operand plane.
bool rows_begin_on_vectors(const ConvTProblem& problem);

// Columns are neighbours and the source has no gaps: every 16 bytes of memory that hold one of its elements, but the
// last, are its own.
bool source_has_no_gaps(const ConvTProblem& problem);

// Into how many shares loaders cut the work of a unit, so that all of them have some: a power of two, shares of a
// multiple of `least_work`.
struct LoaderWork {
  int32_t units, work, least_work;
  int32_t shares() const;
  double cycles() const { return cycles(shares()); }
  double cycles(int32_t shares) const;
  double unit_cycles, work_cycles;
};
LoaderWork copy_work(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program, bool vectors);
LoaderWork convert_work(const ConvTProblem& problem, const WgmmaTile& plan, const TapProgram& program);

// The place of a block's first position in the operand plane, and of its next 8 positions from there.
int32_t block_origin(const WgmmaTile& plan, int32_t block);
int32_t block_row_step(const WgmmaTile& plan);

// Tiles along each digit of a tile's number.
struct WgmmaGrid {
  int32_t channel_tiles, w_tiles, w_splits, h_tiles, batch_tiles;
};
WgmmaGrid make_wgmma_grid(const ConvTProblem& problem, const TapProgram& program, const WgmmaTile& plan);

}  // namespace convt
