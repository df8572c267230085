// What the kernels of the flat engine are launched with. Filled by flat_sm90a/launch.cpp, constant for the whole grid.
// "Source" and "result" are input and output, or for grad_input grad_output and grad_input.
#pragma once

#include <cstdint>

#include "flat_sm90a/layout.h"
#include "pack/params.h"
#include "plan/fast_divmod.h"
#include "plan/tap_program.h"
#include "problem/epilogue.h"

namespace convt::flat_sm90a {

// Source -> planes [group][16 bytes of channels][residue along H][residue along W][position][16 bytes].
struct PackParams {
  const void* source;  // [batch, groups * k_channels, source_h, source_w], any strides
  void* packed;
  int64_t source_stride[4];  // elements
  int32_t batch, k_channels;  // channels per group
  int32_t source_h, source_w;
  int32_t step_h, step_w;  // from an element of a residue to the next
  int32_t sub_h, sub_w;    // residues
  int32_t residue_h[kMaxWindows], residue_w[kMaxWindows];
  FastDivmod by_pitch, by_image_rows;
  int32_t lead;
  int32_t plane_positions;
  int32_t planes;                    // of a group
  int32_t threads_of_position_log2;  // neighbouring threads that take planes of one position
  int32_t planes_each;               // of a thread
  FastDivmod by_plane_blocks, by_group_blocks;
  bool channel_vectors;  // 16 bytes of neighbouring channels may be read at once
};

struct Params : FlatTile {
  const void* source;  // packed
  pack::PackedTaps packed;
  const void* bias;  // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;      // [batch, groups * n_channels, result_h, result_w], NCHW or channels_last
  int64_t result_stride[4];  // elements
  int32_t batch, n_channels;  // channels per group: GEMM N
  int32_t result_h, result_w;
  int32_t result_step_h;  // from one position of an H phase to the next
  bool channels_last;
  int32_t unit;  // neighbours in memory that may be stored together, 1 to 8: NCHW columns, channels_last channels

  // Counts along each digit of a tile's number, fastest first; then tiles of positions.
  FastDivmod block_tiles, h_phases, group_tiles;
  FastDivmod by_pitch, by_image_rows;
  int32_t group_planes;  // planes of a group, all residues counted
  int32_t sub_tiles;     // residues

  // Windows of the source, from a tile's first position: of each residue, or for the forward pass of each H phase.
  int32_t window_begin[kMaxRuns];
  // Taps in the order in which they are packed, and where each of them reads in its window. The taps of run r are
  // run_begin[r] .. run_begin[r + 1], a run one H and W phase or one residue.
  int32_t run_begin[kMaxRuns + 1];
  int16_t places[kMaxFlatTaps];
};

}  // namespace convt::flat_sm90a
