// Kernel parameters of the flat family. flat_sm90a/launch.cpp fills them; they are constant for the whole grid.
// "Source" and "result" are input and output, or grad_output and grad_input.
#pragma once

#include <cstdint>

#include "flat_sm90a/layout.h"
#include "pack/params.h"
#include "plan/tap_program.h"
#include "problem/epilogue.h"
#include "problem/fast_divmod.h"

namespace convt::flat_sm90a {

// Source -> planes [group][16 bytes of channels][residue along H][residue along W][position][16 bytes].
struct PackParams {
  const void* source;  // [batch, groups * k_channels, source_h, source_w], any strides
  void* packed;
  int64_t source_stride[4];  // elements
  int32_t batch, k_channels;  // channels per group
  int32_t source_h, source_w;
  int32_t step_h, step_w;  // source coordinates between elements of a residue
  int32_t sub_h, sub_w;    // number of residues
  int32_t residue_h[kMaxWindows], residue_w[kMaxWindows];
  FastDivmod by_pitch, by_image_rows;
  int32_t lead;
  int32_t plane_positions;
  int32_t planes;                    // per group and residue
  int32_t threads_of_position_log2;  // adjacent threads that pack planes of the same position
  int32_t planes_each;               // per thread
  FastDivmod by_plane_blocks, by_group_blocks;
  bool channel_vectors;  // channels may be read as 16-byte vectors
};

struct Params : FlatTile {
  const void* source;  // packed
  pack::PackedTaps packed;
  const void* bias;  // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // applied after the bias
  void* result;      // [batch, groups * n_channels, result_h, result_w], NCHW or channels_last
  int64_t result_stride[4];  // elements
  int32_t batch, n_channels;  // channels per group: GEMM N
  int32_t result_h, result_w;
  int32_t result_step_h;  // result rows between positions of an H phase
  bool channels_last;
  int32_t unit;  // contiguous elements per vector store, 1 to 8: columns in NCHW, channels in channels_last

  // Counts along each digit of a tile's index, fastest first. Tiles of positions are the last digit.
  FastDivmod block_tiles, h_phases, group_tiles;
  FastDivmod by_pitch, by_image_rows;
  int32_t group_planes;  // planes per group, over all residues
  int32_t sub_tiles;     // number of residues

  // Source position where the window of a tile at position 0 begins: per residue, or per H phase in forward passes.
  int32_t window_begin[kMaxRuns];
  // Taps in packing order. places[] is the offset of each tap in its window. Run r contains taps run_begin[r] ..
  // run_begin[r + 1] - 1. A run is one H and W phase, or one residue.
  int32_t run_begin[kMaxRuns + 1];
  int16_t places[kMaxFlatTaps];
};

}  // namespace convt::flat_sm90a
