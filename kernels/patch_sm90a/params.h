// What the convolution kernel of the patch engine is launched with. Filled by patch_sm90a/launch.cpp, constant for the
// whole grid.
#pragma once

#include <cstdint>

#include "patch_sm90a/layout.h"
#include "plan/divisor.h"

namespace convt::patch_sm90a {

struct Params {
  // Of a gathering kernel the gradients of output and input, otherwise input and output.
  const void* source;  // [batch, groups * k_channels, ...], NCHW or channels_last
  const void* packed;  // weights as pack/ leaves them
  const void* bias;    // [groups * n_channels], contiguous, or null
  void* result;        // [batch, groups * n_channels, ...], in the same layout
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t batch, positions;  // of all images
  Divisor by_image, by_row;  // positions
  Divisor by_rows;           // rows of an image
  int32_t k_channels, n_channels;  // per group
  int32_t kernel_h, kernel_w;      // of a position's patch of the result: 1 where patches are gathered
  int32_t patch_h, patch_w;        // of a position's patch of the source, where they are
  int32_t source_vector;  // bytes that are copied at once
  int32_t unit;           // neighbouring results that may be stored together, 1 to 8

  bool exchange;          // four neighbouring positions have their results in one run of memory, on 16 bytes

  // Tiles: counts along each digit of a tile's number, fastest first; then tiles of positions.
  Divisor tap_tiles, channel_tiles, group_tiles;
  int32_t channel_blocks;  // of 64 channels
  int32_t num_tiles, tile_positions;
  int32_t step;  // positions of a warpgroup: kPatchPositions, or as many as fill whole rows
  int32_t num_chunks;  // stages of a tile
  int32_t splits;       // CTAs of a cluster that share a tile
  int32_t source_slots, weight_slots;
  bool resident;  // every stage has its weights in a slot of its own, for all tiles of the CTA
  int64_t packed_tile_step, packed_row_step;  // bytes, from one channel tile's weights, one row of taps' to the next
  bool staged;      // results leave by way of shared memory
  bool whole_rows;  // and are whole rows of positions
  bool vectors;     // or, 16 bytes of them are of one row, and neighbours
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int32_t vector_mask;    // the positions in them, a power of two, less one
};

}  // namespace convt::patch_sm90a
