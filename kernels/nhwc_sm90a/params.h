// What the convolution kernel of the NHWC engine is launched with. Filled by nhwc_sm90a/launch.cpp, constant for the
// whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nhwc_sm90a/layout.h"
#include "plan/fast_divmod.h"
#include "problem/epilogue.h"

namespace convt::nhwc_sm90a {

// Taps that read one box of the source, and their packed weights.
struct Window {
  int32_t column, row;    // of the source, where the box of position (0, 0) begins
  int16_t num_h, num_w;   // taps
  int16_t tap, tap_row_step, tap_column_step;  // number of tap (0, 0) in the weight, and from one to the next
  int16_t column_step;    // from one tap's place in the box to the next one's
  int32_t row_step;       // of the next tap row
  int32_t first;          // place in the box that tap (0, 0) reads for the tile's first position
  int32_t packed_step;    // bytes from one stage's weights to the next one's
  int64_t packed;         // bytes from the channel tile's weights to those of the first stage
};

struct Params {
  bool staged, rows;
  bool channels_last;  // the result
  const void* packed;  // weights as pack/ leaves them, or null
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;        // [images, groups * n_channels, result_h, result_w], any strides
  int64_t result_stride[4];  // elements
  int32_t batch, result_h, result_w;
  int32_t n_channels;  // of a group
  int32_t unit;  // neighbouring channels that may be stored together
  int32_t step_h, step_w;    // of source coordinates, from one position to the next
  int32_t scale_h, scale_w;  // of result coordinates

  // Tiles: counts along each digit of a tile's number, fastest first; then tiles of images.
  FastDivmod channel_tiles, phases, w_tiles, h_tiles;  // channels of all groups
  FastDivmod group_tiles;  // a channel tile's number: group, tile
  FastDivmod phases_w;
  FastDivmod interleaved_phases_w;  // W phases of a place that a CTA has one after the other: the fastest digit, and
                                    // then not among `phases`
  int32_t windows_of_row;  // W phases in all
  FastDivmod by_run, by_tile_h;  // a tile's place in rows: columns of a row with all W phases, rows of an image
  int32_t row_pitch;
  int32_t pixel_lanes_log2;  // lanes that store the channels of a pixel, in channels_last
  bool pairs;  // two columns of a row may be stored together
  int32_t whole_tiles;  // that are units as they are
  int32_t num_units;
  FastDivmod k_splits;  // of each of the others, which are units
  char* sums;  // of parts, as reduce/ leaves them
  uint32_t* arrived;  // parts of each divided tile; zero before
  int32_t tile_w, tile_h, tile_n;  // positions
  FastDivmod by_row, by_image;  // a tile's positions: columns of a row, rows of an image
  int32_t box_w, box_h;  // places
  uint32_t group_bytes;  // from one group of eight positions to the next where matrix descriptors read the box, which
                         // copies round to TF32 then; otherwise 0

  int32_t splits;  // CTAs of a cluster that share a tile
  int32_t num_chunks;  // of the source's channels
  int32_t num_windows;  // of a tile
  int32_t share_begin[kNhwcMostParts + 1];  // stages of a cluster's CTAs of a tile, or of parts
  int32_t tap_channels;  // of the source, where a copy brings a tap of the weight as it is; otherwise 0
  int32_t box_bytes, stage_bytes, source_slots, weight_slots;
  int32_t slot_taps;  // of a slot of weights
  bool one_tap;  // windows have no more
  int32_t weights_begin, staged_begin, barriers_begin, bias_begin;  // in shared memory
  int64_t packed_tile_step;  // bytes

  // The source where threads bring it, in any layout; otherwise `map` is it.
  bool gathers;
  bool channels_inner;  // neighbouring threads read neighbouring channels, otherwise places
  const void* source;
  int64_t source_step[4];  // bytes
  bool ends_in_word;  // the last element is the lower half of a word, whose upper half is no part of the tensor
  uintptr_t last_element;
  int32_t source_h, source_w, k_channels;  // of a group
  int32_t num_places;
  FastDivmod by_box_w, by_box_h;
  Window windows[kNhwcMostWindows];  // of each phase, or all of each tile

  // The source as dimensions [image][row][column][group][channel], of which a box takes every step-th row and column: a
  // stage's source in one copy, zeros for what is outside, which another group's channels are.
  CUtensorMap map;
  // Where there is no packed weight, the weight as it is: as dimensions [block][pair][quad][channel of a pair][tap,
  // source channel], of which one copy brings a tap of a stage; or, where stages do not divide a tap's source channels,
  // as [tap][pair][quad][channel of a pair][source channel], of which one copy brings a block. A block is
  // nhwc_direct_channels() result channels in the order of columns.
  CUtensorMap weights;
  // Results of a phase, the phases in the order of windows, if a tile's leave by way of shared memory.
  CUtensorMap results[kNhwcMostStagedPhases];
};

}  // namespace convt::nhwc_sm90a
