// What the convolution kernels of the patch engine are launched with. Filled by patch_sm90a/launch.cpp, constant for
// the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "patch_sm90a/layout.h"
#include "problem/epilogue.h"

namespace convt::patch_sm90a {

struct Params {
  // For gradients of the input these are the gradients of output and input, otherwise input and output.
  const void* source;  // [batch, groups * k_channels, ...], NCHW or channels_last
  const void* packed;  // weights as pack/ leaves them
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;        // [batch, groups * n_channels, ...], in the layout of the source
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t batch, positions;  // of all images
  FastDivmod by_image, by_row;  // positions
  FastDivmod by_rows;           // rows of an image
  int32_t k_channels, n_channels;  // per group
  int32_t kernel_h, kernel_w;      // of a position's patch of the result: 1 where patches are gathered
  int32_t patch_h, patch_w;        // of a position's patch of the source, where patches are gathered
  int32_t source_vector;  // bytes that are copied at once
  int32_t unit;           // neighbouring results that may be stored together, 1 to 8
  bool exchange;          // four neighbouring positions have their results in one run of memory, on 16 bytes

  // Tiles: counts along each digit of a tile's number, fastest first; then tiles of positions.
  FastDivmod tap_tiles, channel_tiles, group_tiles;
  int32_t channel_blocks;  // of 64 channels
  int32_t num_tiles, tile_positions;
  int32_t step;        // positions of a warpgroup: kPatchPositions, or as many as fill whole rows
  int32_t num_chunks;  // stages of a tile
  int32_t splits;      // CTAs of a cluster that share a tile
  int32_t source_slots, weight_slots;
  bool resident;  // every stage has its weights in a slot of its own, for all tiles of the CTA
  int64_t packed_tile_step, packed_row_step;  // bytes, from one channel tile's weights, one row of taps' to the next
  bool staged;      // results leave by way of shared memory,
  bool whole_rows;  // as whole rows of positions,
  bool vectors;     // or so that 16 bytes of them are neighbours in one row
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
};

// Of the kernel for weights as they are.
struct DirectParams : PatchDirectLayout {
  // The weights as dimensions [box][channel][column], zeros outside of them. A box is a stage: [boxes of a tile][128
  // bytes of channels][128 bytes of columns], with the swizzle of 128 bytes.
  CUtensorMap weights;
  const void* source;  // [batch, k_channels, h.in, w.in]
  const void* bias;    // [channels of the result], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;        // [batch, channels, h.out, w.out]
  int64_t source_stride[2];  // elements, of images and channels; positions are neighbours
  int64_t result_stride[3];  // of images, channels, rows; columns are neighbours
  bool source_pairs;         // the source is read two positions at a time
  int32_t vector;  // elements of a row of the result that are stored at once: of two or four columns, one or more
                   // neighbouring positions
};

// Of the kernel for runs of grad_output.
struct RunsParams : PatchRunsLayout {
  // The weights as [channel of the result][K], zeros outside of them. A box is a stage: 128 bytes of K of the rows of a
  // tile, with the swizzle of 128 bytes; float32 is rounded to TF32.
  CUtensorMap weights;
  CUtensorMap lines;  // grad_output as [channel][image][line][column], where runs come by boxes
  const void* source;  // grad_output [batch, channels, h.out, w.out]
  void* result;        // [batch, n_channels, h.in, w.in]
  int64_t source_stride[2];  // bytes, of images and channels
  int64_t result_stride[2];  // elements, of images and channels; positions are neighbours
  int32_t n_channels;
  bool quads;  // four neighbouring positions have their results in one run of memory, and on as many bytes
};

}  // namespace convt::patch_sm90a
