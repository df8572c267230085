// What the kernels of the flat engine are launched with. Filled by flat_sm90a/launch.cpp, constant for the whole grid.
// "Source" and "result" are input and output, or for grad_input grad_output and grad_input.
#pragma once

#include <cstdint>

#include "flat_sm90a/layout.h"
#include "plan/divisor.h"
#include "plan/tap_program.h"

namespace convt::flat_sm90a {

// Source -> planes [group][16 bytes of channels][residue along H][along W][position][16 bytes].
struct PackParams {
  const void* source;  // [batch, groups * k_channels, source_h, source_w], any strides
  void* packed;
  int64_t source_stride[4];  // elements
  int32_t batch, k_channels;  // channels per group
  int32_t source_h, source_w;
  int32_t step_h, step_w;  // from an element of a residue to the next
  int32_t sub_h, sub_w;    // residues
  int32_t residue_h[kMaxWindows], residue_w[kMaxWindows];
  Divisor by_pitch, by_image_rows;
  int32_t lead;
  int32_t plane_positions;
  int32_t planes;                    // of a group
  int32_t threads_of_position_log2;  // neighbouring threads that take planes of one position
  int32_t planes_each;               // of a thread
  Divisor by_plane_blocks, by_group_blocks;
  bool channel_vectors;  // 16 bytes of neighbouring channels may be read at once
};

struct Params {
  const void* source;  // packed
  const void* packed;  // weights as pack/ leaves them
  const void* bias;    // [groups * n_channels], contiguous, or null
  void* result;        // [batch, groups * n_channels, result_h, result_w], NCHW or channels_last
  int64_t result_stride[4];  // elements
  int32_t batch, n_channels;  // channels per group: GEMM N
  int32_t result_h, result_w;
  int32_t result_step_h;  // from one position of an H phase to the next
  bool channels_last;
  int32_t unit;  // neighbours in memory that may be stored together, 1 to 8: NCHW columns, channels_last channels

  // Tiles: counts along each digit of a tile's number, fastest first; then tiles of positions.
  Divisor block_tiles, h_phases, group_tiles;
  int32_t num_tiles, tile_positions;
  int32_t channel_tiles;  // of 64
  bool split_channels;
  Divisor by_pitch, by_image_rows;

  int64_t plane_bytes;
  int32_t group_planes;  // planes of a group, all residues counted
  int32_t sub_tiles;     // residues
  int32_t window;      // positions of a plane in a stage
  int32_t k_steps, num_chunks;
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t packed_chunk_step[kMaxWindows];   // bytes from one stage's weights to the next, per H phase
  int64_t packed_phase_begin[kMaxWindows];  // bytes, of an H phase within a channel tile's weights
  int64_t packed_tile_step;                 // bytes, from one channel tile's weights to the next
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory

  // Windows of the source, from a tile's first position: of each residue, or for the forward pass of each H phase.
  int32_t window_begin[kMaxRuns];
  // Taps in the order in which they are packed, and where each of them reads in its window. The taps of run r are
  // run_begin[r] .. run_begin[r + 1], a run one H and W phase or one residue.
  int32_t run_begin[kMaxRuns + 1];
  int16_t places[kMaxFlatTaps];
};

}  // namespace convt::flat_sm90a
