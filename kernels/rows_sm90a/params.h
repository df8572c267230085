// What the kernels of the rows engine are launched with. Filled by rows_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/epilogue.h"
#include "rows_sm90a/layout.h"

namespace convt::rows_sm90a::strided {

inline constexpr int kMaxCopies = 8;

// Weights of a slot that lie together in global memory.
struct WeightCopy {
  int64_t from;  // bytes from the channel tile's first, of the first stage
  int32_t step;  // to the next one's
  int32_t to;    // bytes from the slot's begin
  int32_t bytes;
};

struct Params {
  // The source as dimensions [image][row][channel][column] or, where tiles are whole images,
  // [image][1][channel][pixel]; zeros outside of it. A box of it is a stage's source.
  CUtensorMap map;
  bool has_map;  // otherwise the source does not begin on 16 bytes
  const void* source;  // of the gradient grad_output, otherwise the input
  const void* packed;  // weights as pack/ leaves them
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;        // [batch, groups * n_channels, ...], NCHW
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t source_h, source_w;
  int32_t batch, width;  // of positions
  int32_t k_channels, n_channels;  // per group
  int32_t unit;  // neighbouring results that may be stored together, 1 to 8

  FastDivmod channel_tiles, phase_tiles, group_tiles, inner_tiles, outer_tiles;  // the tile's grid
  int32_t num_tiles;
  int32_t tile_images;  // whole ones, or 1 of which a tile has some quads
  int32_t tile_quads;
  int32_t strip_width;  // columns of positions
  FastDivmod by_strip;     // quads of a strip of an image
  FastDivmod by_row;       // quads of a row of a strip

  // A stage of the source.
  bool whole_images;
  bool image_copies;  // without a map: an image of a channel is one copy
  int32_t box_lead;  // columns before the strip's first
  int32_t pitch;     // elements of a channel's row, or image, with what follows it
  int32_t box_rows;  // 1 where these are images
  int32_t row_bytes, channel_bytes, image_bytes;  // from one to the next
  int32_t stage_bytes;

  int32_t splits;       // of the stages: CTAs of a cluster that share a tile
  int32_t num_chunks;  // stages of a tile
  int32_t source_slots, weight_slots;
  int32_t num_copies;  // of weights for a slot
  WeightCopy copies[kMaxCopies];  // of each slot of a stage, or of each H phase
  int64_t packed_tile_step;  // bytes
  int32_t weights_begin, zeros_begin, barriers_begin;  // in shared memory
};

}  // namespace convt::rows_sm90a::strided

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

  int32_t begin_w;  // the first tile's column
  int32_t advance_w;  // columns from one tile to the next, tile_w - overlap
  int32_t tile_h;
  int32_t overlap;  // 0, or the elements of a sector: what a tile owns of a row begins on one
  int32_t tile_w_log2;
  int32_t warps_w_log2;  // warps beside each other, log2(tile_w / 32)

  FastDivmod channel_tiles, group_tiles, inner_tiles, outer_tiles;  // the tile's grid
  int32_t num_tiles;
  int32_t num_chunks;  // stages of a tile
  int32_t source_slots;  // stages in shared memory
  int32_t slot_bytes;  // a multiple of 128: source, then weights
  int32_t source_bytes;  // of all boxes
  int64_t packed_tile_step;  // bytes, from one channel tile's weights to the next
  int32_t granule;  // elements of shared memory that are read at once for a 16-byte store: what all of the tiles'
                    // begins and the rows of the result in memory have in common, 1 to 16 bytes' worth
  int32_t staged_begin, barriers_begin;  // in shared memory
};

}  // namespace convt::rows_sm90a::window
