// Geometry of the window engine (rows_sm90a/): layers of stride and dilation 1 in NCHW, whose source windows stay in
// registers for all taps of a row.
//
// A tile is `tile_h` rows of `tile_w` columns of a set of result channels. Two warpgroups multiply; each of their eight
// warps has a patch of 32 columns and a few rows, and the warps lie beside and above each other as the tile's width
// says. A stage has one step of K of the source rows that a tile reads, as they lie in memory, and the weights of all
// taps. Called by: rows_sm90a/window_plan.cpp, rows_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// The window engine's tile.
struct WindowTile {
  int32_t instance;  // index into kWindowInstances
  int32_t block_n;  // result channels
  int32_t tile_h, tile_w;
  int32_t overlap;  // columns that neighbouring tiles share, so that each may begin on a sector of memory
  int32_t row_classes, channel_classes;  // of the source, 1 where all rows begin on 16 bytes
  int32_t pitch;  // elements from one channel of a stage to the next
  int32_t num_chunks;  // stages
  int32_t source_slots, slot_bytes;  // of stages in shared memory
  int32_t staged_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;

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

inline constexpr int32_t kWindowKernelH = 3;
inline constexpr int32_t kWindowWarps = 8;  // that multiply
inline constexpr int32_t kWindowColumns = 32;  // of a warp, four neighbours a thread
inline constexpr int32_t kWindowStoreWarps = 7;  // beside the one that loads
inline constexpr int32_t kWindowThreads = 512;
inline constexpr int32_t kWindowMaps = 16;  // of classes of the source

// Of an operand: tf32x3 has a high and a low term.
inline constexpr int32_t window_terms(Precision precision) { return precision == Precision::kTf32x3 ? 2 : 1; }

// Rows of a warp: accumulators take at most 128 registers of a thread, those of operands in two terms half as many,
// beside the accumulators of their runs.
inline constexpr int32_t window_warp_rows(int32_t block_n, int32_t element, int32_t terms) {
  if (terms > 1) return 64 / block_n;
  return block_n == 32 && element == 2 ? 4 : 2;
}
// Tiles are 32, 64 or 128 columns wide.
inline constexpr int32_t window_tile_h(int32_t block_n, int32_t element, int32_t terms, int32_t tile_w) {
  return kWindowWarps * kWindowColumns / tile_w * window_warp_rows(block_n, element, terms);
}
// Source channels of a stage: 32 bytes of every position.
inline constexpr int32_t window_channels(int32_t element) { return 32 / element; }

// Copies begin on 16 bytes of memory. Where rows of the source do not, it is several tensors: rows whose numbers are
// the same modulo `rows` begin alike, as do channels modulo `channels`, and a class of both is a tensor of its own,
// whose columns begin up to 15 bytes before the row's. Powers of two, 1 and 1 where all rows begin on 16 bytes; 0 where
// there is no such description.
struct WindowClasses {
  int32_t rows, channels;
};
WindowClasses window_classes(const ConvTProblem& problem);

// Kernels that serve more than one class: one of half precision would need more registers than there are.
inline constexpr bool window_serves_classes(int32_t block_n, int32_t element, int32_t terms, int32_t kernel_w) {
  return window_warp_rows(block_n, element, terms) <= 2 || kernel_w < 7;
}

// The most elements by which rows begin behind 16 bytes.
inline constexpr int32_t window_most_shift(const WindowClasses& classes, int32_t element) {
  const int32_t vector = 16 / element, most = classes.rows > classes.channels ? classes.rows : classes.channels;
  return vector - vector / most;
}
// Elements from one channel of a stage to the next, the tile's columns and at least `margin`: windows are then read
// without bank conflicts, but by float32 whose channels are not all alike.
inline constexpr int32_t window_pitch(int32_t tile_w, int32_t margin, int32_t element, int32_t channel_classes) {
  if (channel_classes > 2 || (channel_classes > 1 && element == 2)) return tile_w + 16;
  return tile_w + (margin <= 8 ? 8 : 24);
}
// Rows of a box: a tile's rows of one class.
inline constexpr int32_t window_box_rows(int32_t tile_h, int32_t row_classes) {
  return (tile_h + kWindowKernelH - 1 + row_classes - 1) / row_classes;
}
// Of all taps of a stage: for each of them two planes [result channel][16 bytes] of every term.
inline constexpr int32_t window_weight_bytes(int32_t block_n, int32_t terms, int32_t kernel_w) {
  return kWindowKernelH * kernel_w * 32 * block_n * terms;
}

// A tile's results wait in shared memory until they are stored, [warpgroup][channel][row][column]: all of them, or
// where those leave no room for two stages half or a quarter of the channels at a time.
inline constexpr int32_t window_staged_pieces(int32_t block_n, int32_t element, int32_t terms, int32_t kernel_w) {
  if (terms > 1) return block_n == 64 && kernel_w > 5 ? 4 : 1;
  return block_n * element > 128 && kernel_w > 3 ? 2 : 1;
}
// Elements from one channel to the next, 16 bytes more than a warpgroup's positions, against bank conflicts.
inline constexpr int32_t window_staged_pitch(int32_t block_n, int32_t element, int32_t terms) {
  return kWindowWarps / 2 * kWindowColumns * window_warp_rows(block_n, element, terms) + 16 / element;
}
// Of a warpgroup, with the bias of its channels.
inline constexpr int32_t window_staged_bytes(int32_t block_n, int32_t element, int32_t terms, int32_t kernel_w) {
  const int32_t channels = block_n / window_staged_pieces(block_n, element, terms, kernel_w);
  return channels * window_staged_pitch(block_n, element, terms) * element + 4 * block_n;
}
// Two barriers for each stage and each warpgroup's results.
inline constexpr int32_t window_barrier_bytes(int32_t slots) { return 16 * (slots + 2); }

// Tiles of a row: the first begins at column `begin`, at most 0, so that its source windows lie on 16 bytes; each is
// `tile_w - overlap` columns after the one before. With an overlap of a sector's elements (32 bytes) what a tile owns
// of every row begins on a sector of memory, wherever that is.
inline constexpr int32_t window_begin(int32_t first_w, int32_t element) {
  const int32_t vector = 16 / element;
  return -(((first_w % vector) + vector) % vector);
}
inline constexpr int32_t window_column_tiles(int32_t result_w, int32_t begin, int32_t tile_w, int32_t overlap) {
  const int32_t rest = result_w - begin - tile_w;
  return rest <= 0 ? 1 : 1 + (rest + tile_w - overlap - 1) / (tile_w - overlap);
}

// The source coordinate that a result's first tap reads, counted from the result's own.
int32_t window_shift(const Axis& axis, Direction direction);

// Tensor maps can describe the source, and neither it nor the result has anything between the columns of a row.
bool window_reads_rows(const ConvTProblem& problem);

// The elements, at most a vector's, that the begins of the result's rows, channels and images and of the tiles have in
// common, in a result that begins on a vector.
int32_t window_granule(const ConvTProblem& problem, int32_t begin_w);

// Tiles along each digit of a tile's number, and the column of the first of them.
struct WindowGrid {
  int32_t channel_tiles, groups, column_tiles, row_tiles;
  int32_t begin_w;
};
WindowGrid make_window_grid(const ConvTProblem& problem, const WindowTile& plan);

}  // namespace convt
