// Geometry of the rows engine (rows_sm90a/), whose kernels read rows of NCHW as they are and make shifted operands of
// them in registers: what a kernel is compiled for, its tile, and what follows from them.
//
// In both families a stage is a step of K of the source rows that a tile reads, and a thread has four neighbouring
// positions of a row, a quad.
// Called by: families/families.h, plan.cpp, launch.cpp, the kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// What a kernel of either family is compiled for.
struct RowsShape {
  DataType dtype;
  Precision precision;
  int32_t block_n;  // result channels of a tile

  constexpr int32_t element() const { return dtype == DataType::kFloat32 ? 4 : 2; }  // bytes
  constexpr int32_t vector() const { return 16 / element(); }  // elements
  constexpr int32_t channels() const { return 32 / element(); }  // of a stage
  // Of an operand: tf32x3 has a high and a low term.
  constexpr int32_t terms() const { return precision == Precision::kTf32x3 ? 2 : 1; }
  // Of a tap's weights in a stage: two planes [result channel][16 bytes] of every term.
  constexpr int32_t tap_bytes() const { return 32 * terms() * block_n; }
};

// Tiles along each digit of a tile's number, the fastest first; behind them come images.
struct RowsGrid {
  int32_t channels;
  int32_t phases;  // H phases of the output, of `strided`
  int32_t groups;
  int32_t inner, outer;  // strided: pieces of a strip, and strips; window: along a row, and rows of tiles
};

struct RowsTile {
  int32_t instance;  // index into kStridedInstances or kWindowInstances
  int32_t block_n;  // result channels
  RowsGrid grid;
  int32_t num_tiles;
  int32_t num_chunks;  // stages of a tile
  int32_t source_slots;  // stages in shared memory
  int32_t barriers_begin;  // in shared memory
};

// The family `strided`: 4 x 4 and 3 x 3 kernels of stride 2 and padding 1, which double an image, and their gradients
// of the input. Positions are pixels of the smaller image. An image is cut into strips of columns; the quads of a strip
// are one sequence, row after row, and a tile is a piece of it or, where images are small, several whole images.

inline constexpr int32_t kStridedConsumers = 2;  // warpgroups that multiply
inline constexpr int32_t kStridedStripWidth = 64;  // positions, at most
inline constexpr int32_t kStridedMostSplits = 4;  // CTAs that share a tile
inline constexpr int32_t kStridedZeroBytes = 64;  // what is read of a row beside the source
inline constexpr int32_t kStridedLoaders = 96;  // threads that copy a source no tensor map can describe

// What a position of the matrix product has.
enum class StridedForm : int32_t {
  kOutput,  // two columns of one row of the output, or of both rows for a 3 x 3 kernel, from 2 rows of the input
  kGather,  // an element of the input's gradient, from as many rows of the output's as the kernel has
};

struct StridedShape : RowsShape {
  static constexpr int32_t kThreads = 128 * (kStridedConsumers + 1);

  StridedForm form;
  int32_t kernel;  // of both axes
  bool alternate;  // a tile's warpgroups have the same positions and every other stage

  constexpr bool output() const { return form == StridedForm::kOutput; }
  // Source columns, and rows, from a position to the next.
  constexpr int32_t step() const { return output() ? 1 : 2; }
  // A 3 x 3 kernel has phases of 1, 2, 2 and 4 taps: a tile has all of them, otherwise both W phases of one H phase.
  constexpr bool all_phases() const { return output() && kernel == 3; }
  // Accumulators of a position for a channel.
  constexpr int32_t phases() const { return !output() ? 1 : all_phases() ? 4 : 2; }
  // Rows of the source that a position reads, and the first of them for a position of row 0 (of the second H phase one
  // later).
  constexpr int32_t rows() const { return output() ? 2 : kernel; }
  constexpr int32_t first_row() const { return all_phases() ? 0 : -1; }
  // Rows whose weights are in a slot.
  constexpr int32_t slot_rows() const { return output() ? 2 : 1; }
  constexpr int32_t slot_taps() const { return !output() ? kernel : kernel == 3 ? 9 : 8; }
  constexpr int32_t slot_bytes() const { return slot_taps() * tap_bytes(); }
  constexpr int32_t quads() const { return alternate ? 32 : 32 * kStridedConsumers; }  // of a tile, at most
  constexpr int32_t sums() const { return 4 * quads() * block_n * phases(); }  // accumulators of a tile
};

struct StridedTile : RowsTile {
  int32_t splits;  // CTAs of a cluster that share a tile, each with some of the source's channels
  bool alternate;  // the warpgroups of a CTA share a tile, each every other stage
  bool whole_images;  // of the source in a stage: an image of a channel is one row of it
  bool image_copies;  // which is too long for a tensor map's box, and a copy of its own
  int32_t strip_width;  // columns of positions
  int32_t tile_images;  // whole ones, or 1 of which a tile has some quads
  int32_t tile_quads;
  int32_t box_rows, pitch;  // of a stage: rows, elements of a channel's row
  int32_t box_lead;  // columns before the strip's first
  int32_t stage_bytes, weight_slots;
  int32_t weights_begin, zeros_begin;  // in shared memory

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_n", block_n);
    field("splits", splits);
    field("alternate", alternate);
    field("strip_width", strip_width);
    field("tile_images", tile_images);
    field("tile_quads", tile_quads);
    field("whole_images", whole_images);
    field("image_copies", image_copies);
    field("num_tiles", num_tiles);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
  }
};

// The family `window`: layers of stride and dilation 1, whose source windows stay in registers for all taps of a row.
// A tile is `tile_h` rows of `tile_w` columns. Each of the eight warps that multiply has a patch of 32 columns and a
// few rows, and the warps lie beside and above each other as the tile's width says.

inline constexpr int32_t kWindowKernelH = 3;
inline constexpr int32_t kWindowWarps = 8;  // that multiply
inline constexpr int32_t kWindowColumns = 32;  // of a warp
inline constexpr int32_t kWindowStoreWarps = 7;  // beside the one that loads
inline constexpr int32_t kWindowMaps = 16;  // of classes of the source

struct WindowShape : RowsShape {
  static constexpr int32_t kThreads = 512;

  int32_t kernel_w;

  // Rows of a warp: accumulators take at most 128 registers of a thread, those of operands in two terms half as many,
  // beside the accumulators of their runs.
  constexpr int32_t warp_rows() const {
    if (terms() > 1) return 64 / block_n;
    return block_n == 32 && element() == 2 ? 4 : 2;
  }
  // Tiles are 32, 64 or 128 columns wide.
  constexpr int32_t tile_h(int32_t tile_w) const { return kWindowWarps * kWindowColumns / tile_w * warp_rows(); }
  // Whether the kernel reads sources of more than one class: one of half precision would need more registers than
  // there are.
  constexpr bool reads_classes() const { return warp_rows() <= 2 || kernel_w < 7; }
  constexpr int32_t weight_bytes() const { return kWindowKernelH * kernel_w * tap_bytes(); }  // of a stage

  // A tile's results wait in shared memory until they are stored, [warpgroup][channel][row][column]: all of them, or
  // where those leave no room for two stages half or a quarter of the channels at a time.
  constexpr int32_t staged_pieces() const {
    if (terms() > 1) return block_n == 64 && kernel_w > 5 ? 4 : 1;
    return block_n * element() > 128 && kernel_w > 3 ? 2 : 1;
  }
  constexpr int32_t staged_channels() const { return block_n / staged_pieces(); }
  // Elements from one channel to the next, 16 bytes more than a warpgroup's positions, against bank conflicts.
  constexpr int32_t staged_pitch() const { return kWindowWarps / 2 * kWindowColumns * warp_rows() + vector(); }
  // Of a warpgroup, and with the bias of its channels.
  constexpr int32_t staged_result_bytes() const { return staged_channels() * staged_pitch() * element(); }
  constexpr int32_t staged_bytes() const { return staged_result_bytes() + 4 * block_n; }
};

struct WindowTile : RowsTile {
  int32_t tile_h, tile_w;
  int32_t begin_w;  // the first column tile's, at most 0, so that source windows lie on 16 bytes
  int32_t overlap;  // 0, or columns that neighbouring tiles share, so that what each owns of a row begins on a sector
  // Copies begin on 16 bytes of memory. Where rows of the source do not, it is several tensors: rows whose numbers are
  // the same modulo `row_classes` begin alike, as do channels, and a class of both is a tensor of its own, whose
  // columns begin up to 15 bytes before the row's. Powers of two, 1 where all rows begin on 16 bytes.
  int32_t row_classes, channel_classes;
  int32_t pitch;  // elements from one channel of a stage to the next
  int32_t slot_bytes;  // of a stage, a multiple of 128: source, then weights
  int32_t granule;  // elements, at most a vector's, that the begins of all tiles and result rows have in common
  int32_t staged_begin;  // in shared memory

  constexpr int32_t box_rows() const {  // a tile's rows of one class
    return (tile_h + kWindowKernelH - 1 + row_classes - 1) / row_classes;
  }

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_n", block_n);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("overlap", overlap);
    field("num_tiles", num_tiles);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("row_classes", row_classes);
    field("channel_classes", channel_classes);
  }
};

// The source coordinate that a result's first tap reads, counted from the result's own.
inline int32_t window_shift(const Axis& axis, Direction direction) {
  return direction == Direction::kForward ? axis.padding - (axis.kernel - 1) : -axis.padding;
}

}  // namespace convt
