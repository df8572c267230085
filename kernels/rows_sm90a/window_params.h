// What the window engine's kernel is launched with. Filled by rows_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "epilogue/program.h"
#include "plan/divisor.h"
#include "rows_sm90a/window_layout.h"

namespace convt::rows_sm90a::window {

struct Params {
  // The source as dimensions [image][row][channel][column], columns innermost; zeros outside of it. Map number
  // c * channel_classes + d has rows c, c + row_classes, ... of channels d, d + channel_classes, ..., and its columns
  // begin at 16 bytes of memory, up to 15 bytes before the rows'. A box is [1][rows of a tile][channels of a stage]
  // [pitch], as many rows and channels as are of one class, and a stage has a box of every class.
  CUtensorMap source[kWindowMaps];
  const void* packed;  // [group][channel tile][stage][tap by ascending source row, column][term][2][block_n][16 bytes]
  const void* bias;  // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;  // [batch, groups * n_channels, result_h, result_w], columns are neighbours
  int64_t result_stride[3];  // elements, of images, channels, rows
  int32_t k_channels, n_channels;  // per group
  int32_t result_h, result_w;
  // Result (row, column) reads source rows row + first_h + i, i < kWindowKernelH, columns column + first_w + j,
  // j < kernel width.
  int32_t first_h, first_w;

  int32_t row_classes_log2, channel_classes_log2;
  int32_t row_shift, channel_shift;  // elements from a row and a channel to the next, modulo 16 bytes
  int32_t box_bytes;  // a multiple of 128
  // In a stage, from a channel to the next of its class, from a row to the next of its class, from a class of rows to
  // the next; from a channel to its neighbour and (half precision) the one 8 or (float32) 4 further.
  int32_t channel_bytes, row_bytes, class_bytes, neighbour_bytes, far_bytes;

  int32_t begin_w;  // the first tile's column, window_begin(first_w)
  int32_t advance_w;  // columns from one tile to the next, tile_w - overlap
  int32_t advance_h;  // tile_h
  int32_t overlap;  // 0, or the elements of a sector: what a tile owns of a row begins on one
  int32_t tile_w_log2;
  int32_t warps_w_log2;  // warps beside each other, log2(tile_w / 32)

  // Tiles: counts along each digit of a tile's number, fastest first; then images.
  Divisor channel_tiles, group_tiles, column_tiles, row_tiles;
  int32_t num_tiles;
  int32_t num_chunks;  // stages of a tile
  int32_t slots;  // stages in shared memory
  int32_t slot_bytes;  // a multiple of 128: source, then weights
  int32_t source_bytes;  // of all boxes
  int64_t packed_tile_step;  // bytes, from one channel tile's weights to the next, num_chunks * window_weight_bytes
  int32_t granule;  // elements of shared memory that are read at once for a 16-byte store: what all of the tiles'
                    // begins and the rows of the result in memory have in common, 1 to 16 bytes' worth
  int32_t staged_begin, barriers_begin;  // in shared memory
};

}  // namespace convt::rows_sm90a::window
