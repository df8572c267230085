// Parameters of the patch engine's kernels. Set by patch_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "patch_sm90a/layout.h"
#include "problem/epilogue.h"

namespace convt::patch_sm90a {

struct Params {
  // Forward: source = input, result = output. Gradient of the input: source = grad_output, result = grad_input.
  const void* source;  // [batch, groups * k_channels, ...], NCHW or channels_last
  const void* packed;  // packed weights (pack/)
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;        // [batch, groups * n_channels, ...], in the layout of the source
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t batch, positions;  // positions: of all images
  FastDivmod by_image, by_row;  // divisors of a position
  FastDivmod by_rows;           // rows per image
  FastDivmod by_planes;         // images per batch element (problem/volume.h)
  int64_t source_batch, result_batch;  // elements between batch elements; source_stride[0] is between images
  int32_t k_channels, n_channels;  // per group
  FastDivmod by_tap_rows;          // rows per plane of a patch, in the tensor that has patches
  int64_t plane_stride;            // elements between planes of a patch
  // Paired result channels (pair_channels()): in NCDHW alternating planes, in channels_last the halves before and from
  // `split` on.
  bool paired;
  int32_t split, bias_channels;
  int64_t odd_channel;  // elements to add for odd channels
  int64_t tap_row, tap_column;  // channels_last: elements between pairs of a tile's taps, and between adjacent taps
  int32_t kernel_w;  // patch of a position in the result; 1 if the kernel gathers
  int32_t patch_h, patch_w;  // patch of a position in the source, if the kernel gathers; patch_h: of all planes
  int32_t source_vector;  // bytes per copy
  int32_t unit;  // contiguous results per vector store, 1 to 8
  bool exchange;  // four adjacent positions have contiguous results, aligned to 16 bytes

  // Tiles: counts along each digit of a tile's index, fastest first. Tiles of positions are the last digit.
  FastDivmod tap_tiles, channel_tiles, group_tiles;
  int32_t channel_blocks;  // of 64 channels
  int32_t num_tiles, tile_positions;
  int32_t step;  // positions per warpgroup: kPatchPositions, or as many as fill whole rows
  int32_t num_chunks;  // stages per tile
  int32_t splits;  // CTAs of a cluster that share a tile
  int32_t source_slots, weight_slots;
  bool resident;  // each stage's weights have their own slot, for all tiles of the CTA
  int64_t packed_tile_step, packed_row_step;  // bytes between the weights of channel tiles, and of rows of taps
  bool staged;  // results are stored through shared memory
  bool whole_rows;  // in whole rows of positions
  bool vectors;  // in runs whose 16-byte vectors stay within one row
  int32_t weights_begin, staged_begin, barriers_begin;  // offsets in shared memory
};

// Parameters of patch_direct.
struct DirectParams : PatchDirectLayout {
  // The weights with dimensions [box][channel][column], zero outside. A stage is one copy: [boxes of a tile][128 bytes
  // of channels][128 bytes of columns], with the swizzle of 128 bytes.
  CUtensorMap weights;
  const void* source;  // [batch, k_channels, h.in, w.in]
  const void* bias;  // [result channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;  // [batch, channels, h.out, w.out]
  int64_t source_stride[2];  // elements, of images and channels; positions are contiguous
  int64_t result_stride[3];  // of images, channels, rows; columns are contiguous
  int64_t plane_stride;  // elements between planes of the result
  int64_t quad_row;  // elements between the two rows of a quad
  bool source_pairs;  // source positions are read in pairs
  int32_t vector;  // elements of a row of the result per store: two or four columns of one or more adjacent positions
};

// Parameters of patch_runs.
struct RunsParams : PatchRunsLayout {
  // The weights as [result channel][K], zero outside. A box is a stage: 128 bytes of K of the rows of a tile, with the
  // swizzle of 128 bytes. float32 is rounded to TF32.
  CUtensorMap weights;
  CUtensorMap lines;  // grad_output as [channel][image][line][column], if `boxes`
  const void* source;  // grad_output [batch, channels, h.out, w.out]
  void* result;  // [batch, n_channels, h.in, w.in]
  int64_t source_stride[2];  // bytes, of images and channels
  int64_t result_stride[2];  // elements, of images and channels; positions are contiguous
  int32_t n_channels;
  bool quads;  // four adjacent positions have contiguous, aligned results
};

}  // namespace convt::patch_sm90a
