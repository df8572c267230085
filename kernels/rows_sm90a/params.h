// Parameters of the rows engine's kernels. Set by rows_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "problem/epilogue.h"
#include "problem/fast_divmod.h"
#include "rows_sm90a/layout.h"

namespace convt::rows_sm90a::strided {

inline constexpr int kMaxCopies = 8;

// A bulk copy of packed weights to a slot.
struct WeightCopy {
  int64_t from;  // byte offset in the channel tile's weights, for the first stage
  int32_t step;  // bytes between stages
  int32_t to;    // byte offset in the slot
  int32_t bytes;
};

struct Params {
  // The source with dimensions [image][row][channel][column], or [image][1][channel][pixel] if stages contain whole
  // images. One box loads a stage, with zeros outside the tensor.
  CUtensorMap map;
  bool has_map;  // the source is aligned to 16 bytes; otherwise threads copy it
  const void* source;  // forward: the input; gradient: grad_output
  const void* packed;  // packed weights (pack/)
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;        // [batch, groups * n_channels, ...], NCHW
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t source_h, source_w;
  int32_t batch, width;  // width: of positions
  int32_t k_channels, n_channels;  // per group
  int32_t unit;  // contiguous results per vector store, 1 to 8

  FastDivmod channel_tiles, phase_tiles, group_tiles, inner_tiles, outer_tiles;  // RowsGrid
  int32_t num_tiles;
  int32_t tile_images;  // 1 if a tile is a part of a strip
  int32_t tile_quads;
  int32_t strip_width;  // positions
  FastDivmod by_strip;     // quads per strip
  FastDivmod by_row;       // quads per row of a strip

  // A stage of the source.
  bool whole_images;
  bool image_copies;  // one bulk copy per image and channel instead of the map
  int32_t box_lead;  // columns before the strip's first
  int32_t pitch;     // elements of a channel's row, or image, with padding
  int32_t box_rows;  // 1 for whole images
  int32_t row_bytes, channel_bytes, image_bytes;  // bytes between rows, channels, images
  int32_t stage_bytes;

  int32_t splits;       // CTAs of a cluster that split the stages of a tile
  int32_t num_chunks;  // stages per tile
  int32_t source_slots, weight_slots;
  int32_t num_copies;  // per weight slot
  WeightCopy copies[kMaxCopies];  // for each slot of a stage, or for each H phase
  int64_t packed_tile_step;  // bytes
  int32_t weights_begin, zeros_begin, barriers_begin;  // offsets in shared memory
};

}  // namespace convt::rows_sm90a::strided

namespace convt::rows_sm90a::window {

struct Params {
  // The source with dimensions [image][row][channel][column], zero outside. Map c * channel_classes + d contains rows
  // c, c + row_classes, ... of channels d, d + channel_classes, ... Its columns start at a multiple of 16 bytes, up to
  // 15 bytes before the rows. A box is [1][rows of a tile][channels of a stage][pitch], restricted to one class. A
  // stage has one box per class.
  CUtensorMap source[kWindowMaps];
  const void* packed;  // [group][channel tile][stage][tap by ascending source row, column][term][2][block_n][16 bytes]
  const void* bias;  // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;  // [batch, groups * n_channels, result_h, result_w]
  int64_t result_stride[3];  // elements, of images, channels, rows; columns are contiguous
  int32_t k_channels, n_channels;  // per group
  int32_t result_h, result_w;
  // Result (row, column) reads source rows row + first_h + i, i < kWindowKernelH, columns column + first_w + j,
  // j < kernel width.
  int32_t first_h, first_w;

  int32_t row_classes_log2, channel_classes_log2;
  int32_t row_shift, channel_shift;  // strides of source rows and channels in elements, modulo 16 bytes
  int32_t box_bytes;  // a multiple of 128
  // Bytes in a stage: between channels of a class, rows of a class, row classes, and adjacent channels; to the channel
  // 8 (half precision) or 4 (float32) further.
  int32_t channel_bytes, row_bytes, class_bytes, neighbour_bytes, far_bytes;

  int32_t begin_w;  // first column of the first tile
  int32_t advance_w;  // columns between tiles: tile_w - overlap
  int32_t tile_h;
  int32_t overlap;  // 0, or the elements of a sector: the columns that a tile stores start at a sector
  int32_t tile_w_log2;
  int32_t warps_w_log2;  // log2(tile_w / 32), warps across the tile's width

  FastDivmod channel_tiles, group_tiles, inner_tiles, outer_tiles;  // RowsGrid
  int32_t num_tiles;
  int32_t num_chunks;  // stages per tile
  int32_t source_slots;  // stages in shared memory
  int32_t slot_bytes;  // a multiple of 128: source, then weights
  int32_t source_bytes;  // all boxes of a stage
  int64_t packed_tile_step;  // bytes between the weights of channel tiles
  int32_t granule;  // common alignment of the first columns of tiles and of result rows in memory, in elements, at most
                    // 16 bytes: the size of shared-memory loads with overlap, of global stores without
  int32_t staged_begin, barriers_begin;  // offsets in shared memory
};

}  // namespace convt::rows_sm90a::window
