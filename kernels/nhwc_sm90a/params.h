// Parameters of the nhwc kernel. Set by nhwc_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nhwc_sm90a/layout.h"
#include "problem/epilogue.h"
#include "problem/fast_divmod.h"

namespace convt::nhwc_sm90a {

// Taps that read one box of the source, and their packed weights.
struct Window {
  int32_t column, row, plane;  // source coordinates of the box of position (0, 0)
  int16_t num_h, num_w;   // taps
  int16_t tap, tap_row_step, tap_column_step;  // index of tap (0, 0) in the weight, and steps to the next
  int16_t column_step;    // places from one tap to the next
  int32_t row_step;       // places from one tap row to the next
  int32_t first;          // place in the box that tap (0, 0) reads for the tile's first position
  int32_t packed_step;    // bytes between the weights of consecutive stages
  int64_t packed;         // byte offset of the first stage's weights in those of the channel tile
};

struct Params {
  bool staged, rows;
  bool channels_last;  // the result
  const void* packed;  // packed weights (pack/), or null
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;        // [images, groups * n_channels, result_h, result_w], any strides
  int64_t result_stride[4];  // elements
  int32_t batch, result_h, result_w;
  int32_t n_channels;  // per group
  int32_t unit;  // contiguous channels per vector store
  int32_t step_n, step_h, step_w;  // source images, rows and columns per position
  int32_t scale_h, scale_w;  // result coordinates per position

  // Tiles: counts along each digit of a tile's index, fastest first. Tiles of images are the last digit.
  FastDivmod channel_tiles, phases, w_tiles, h_tiles;  // channel_tiles: of all groups
  FastDivmod group_tiles;  // splits a channel tile's index into group and tile
  FastDivmod phases_w;
  FastDivmod interleaved_phases_w;  // W phases of a place that a CTA computes one after the other: the fastest digit.
                                    // If it is above 1, `phases` excludes them.
  int32_t windows_of_row;  // number of W phases
  FastDivmod by_run, by_tile_h;  // rows of a tile: columns with all W phases, rows of an image
  int32_t row_pitch;
  int32_t pixel_lanes_log2;  // lanes that store the channels of a pixel, in channels_last
  bool pairs;  // stores may cover two columns of a row
  int32_t whole_tiles;  // tiles that are not split
  int32_t num_units;
  FastDivmod k_splits;  // parts per split tile; each part is a unit
  char* sums;  // partial accumulators (reduce/)
  uint32_t* arrived;  // arrived parts per split tile; initially zero
  int32_t tile_w, tile_h, tile_n;  // positions
  FastDivmod by_row, by_image;  // positions of a tile: columns of a row, rows of an image
  int32_t box_w, box_h;  // box size in places
  uint32_t group_bytes;  // bytes between groups of eight positions if matrix descriptors read the box, which TMA then
                         // rounds to TF32; otherwise 0

  int32_t splits;  // CTAs of a cluster that share a tile
  int32_t num_chunks;  // chunks of source channels
  int32_t num_windows;  // per tile
  int32_t share_begin[kNhwcMostParts + 1];  // first stage of each CTA of a cluster, or of each part
  int32_t tap_channels;  // source channels, if one copy loads a tap of the unpacked weight; otherwise 0
  int32_t box_bytes, stage_bytes, source_slots, weight_slots;
  int32_t slot_taps;  // taps per weight slot
  bool one_tap;  // windows have at most one tap
  int32_t weights_begin, staged_begin, barriers_begin, bias_begin;  // offsets in shared memory
  int64_t packed_tile_step;  // bytes

  // The source if threads gather it, in any layout. Otherwise `map` describes it.
  bool gathers;
  bool channels_inner;  // adjacent threads read adjacent channels, otherwise adjacent places
  const void* source;
  int64_t source_step[4];  // bytes
  bool ends_in_word;  // the last element is the lower half of a word whose upper half is outside the tensor
  uintptr_t last_element;
  int32_t source_h, source_w, k_channels;  // k_channels: per group
  int32_t num_places;
  FastDivmod by_box_w, by_box_h;
  Window windows[kNhwcMostWindows];  // of each phase, or all windows of a tile

  // The source with dimensions [image][row][column][group][channel]. A box takes every step-th image, row and column.
  // Images of three-dimensional layers are planes. One copy loads a stage's source, with zeros outside the tensor and
  // outside the group.
  CUtensorMap map;
  // The unpacked weight, if `packed` is null: dimensions [block][pair][quad][channel of a pair][tap, source channel],
  // with one copy per tap and stage. If stages do not divide a tap's source channels: [tap][pair][quad][channel of a
  // pair][source channel], with one copy per block. A block is nhwc_direct_channels() result channels in the order of
  // columns.
  CUtensorMap weights;
  // The result of each phase, in the order of windows, if tiles are stored through shared memory.
  CUtensorMap results[kNhwcMostStagedPhases];
};

}  // namespace convt::nhwc_sm90a
