// What the convolution kernel of the strided engine is launched with. Filled by rows_sm90a/launch.cpp, constant for
// the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "epilogue/program.h"
#include "plan/divisor.h"
#include "rows_sm90a/strided_layout.h"

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

  // Tiles: counts along each digit of a tile's number, fastest first; then tiles of images.
  Divisor channel_tiles, phase_tiles, group_tiles, strip_tiles, strips;
  int32_t num_tiles;
  int32_t tile_images;  // whole ones, or 1 of which a tile has some quads
  int32_t tile_quads;
  int32_t strip_width;  // columns of positions
  Divisor by_strip;     // quads of a strip of an image
  Divisor by_row;       // quads of a row of a strip

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
