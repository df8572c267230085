// What a kernel of the wgmma engine is launched with. Filled by wgmma_sm90a/launch.cpp, constant for the whole grid.
// "Source" and "result" are input and output, or for grad_input grad_output and grad_input.
#pragma once

#include <cstdint>

#include "epilogue/program.h"
#include "pack/params.h"
#include "plan/divisor.h"
#include "plan/tap_program.h"
#include "wgmma_sm90a/layout.h"

namespace convt::wgmma_sm90a {

inline constexpr int32_t kMaxBlocks = 8;  // of 64 positions, in a tile

struct Params : WgmmaTile {
  const void* source;  // [batch, groups * k_channels, source_h, source_w], any strides
  pack::PackedTaps packed;
  const void* bias;    // [groups * n_channels], contiguous, or null
  epilogue::Program steps;  // of results, behind the bias
  void* result;        // [batch, groups * n_channels, result_h, result_w], NCHW or channels_last
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t batch;
  int32_t k_channels, n_channels;  // per group: GEMM K without taps, GEMM N
  int32_t source_h, source_w;
  int32_t result_h, result_w;
  int32_t result_step_h, result_step_w;  // from one position of a phase to the next
  bool vectors;  // loaders copy 16 bytes of the source at a time, otherwise elements
  int64_t source_elements;  // of the whole source, which has no gaps where rows of vectors are gathered
  bool channels_last;  // the result
  bool result_pairs;  // channels_last: pairs of channels may be stored
  bool column_pairs;  // NCHW: pairs of columns may be stored

  // Tiles: counts along each digit of a tile's number, fastest first.
  Divisor channel_tiles, w_tiles, w_splits, h_phases, h_tiles, group_tiles;

  // The operand tile is planes [kTerms][2 * k_steps][sub-tile][image][window row][pitch][16 bytes]. What finds a
  // position in one:
  Divisor by_rows, by_images, by_sub_w, by_pitch, by_tile_w, by_tile_h;
  int32_t num_places;  // positions of a plane that mean something

  // A raw slot is [channel][window row][raw_pitch elements].
  bool gather;             // positions lie elsewhere in a raw channel than in a plane
  int32_t first_column;    // of the source, from the tile's corner
  uint32_t vector_mask;    // elements of 16 bytes - 1 where rows begin anywhere in a vector, otherwise 0
  // What a thread copies: a vector or element of a row, from so many channels of the stage.
  int32_t copy_units, copy_shares, copy_channels;
  Divisor by_copy_units, by_line_units;
  // What a thread converts: 1 or 2 positions, so many planes of the stage.
  int32_t convert_units, unit_positions, convert_shares, convert_planes;
  Divisor by_convert_units;

  // Blocks of 64 positions: 8 groups of 8 neighbours, block_row_step positions apart.
  int32_t block_row_step;
  int32_t block_origin[kMaxBlocks];  // positions of the operand tile
  int32_t staged_positions;          // of the tile

  TapProgram program;
};

}  // namespace convt::wgmma_sm90a
