// What a SIMT kernel is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "epilogue/output_columns.h"
#include "problem/problem.h"
#include "simt/layout.h"
#include "simt/tile.h"

namespace convt::simt {

struct Params {
  const void* x;     // [batch, c_in, h_in, w_in], any strides
  const void* w;     // [c_in, c_out / groups, k_h, k_w], any strides
  const void* bias;  // [c_out], contiguous, or null
  void* y;           // [batch, c_out, h_out, w_out], NCHW or channels_last
  ConvTProblem problem;
  TileShape shape;
  TileGrid grid;
  SharedLayout shared;
  OutputColumns columns;
  int32_t fused_log2;           // W phases per output channel of the problem (problem/fuse.h)
  int64_t weight_group_stride;  // elements from one group's weight to the next
  int64_t weight_phase_stride;  // elements from one fused phase to the next
  int32_t group_c_in;   // c_in / groups
  int32_t group_c_out;  // c_out / groups
  int32_t chunk_ci;
  int32_t chunk_kh;
  int32_t chunk_kw;
  int32_t stages;
  int32_t channel_groups_log2;  // block_co / thread_co
  bool channels_last_input;     // the input's channels are neighbours in memory, its columns are not
  bool channels_last_output;
  bool input_vectors;  // whole quads of columns lie on 16-byte boundaries of the input
  bool weight_vectors;  // the taps of neighbouring output channels are contiguous, 16-byte aligned
};

}  // namespace convt::simt
