// What a kernel of the wgmma engine is launched with. Filled by wgmma_sm90a/launch.cpp, constant for the whole grid.
// "Source" and "result" are input and output, or for grad_input grad_output and grad_input.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "plan/tap_program.h"

namespace convt::wgmma_sm90a {

inline constexpr int32_t kMaxBlocks = 8;  // of 64 positions, in a tile

// How loaders walk a stage of the source.
enum class Walk : int32_t {
  kRows,             // columns.cuh: 16 bytes of a row that begins on 16 bytes
  kVectors,          // columns.cuh: 16 bytes of memory, wherever a row begins in them
  kElements,         // columns.cuh: elements of a row one by one
  kChannels,         // channels.cuh: 16 bytes of neighbouring channels
  kChannelElements,  // channels.cuh: channel by channel
};

struct Params {
  const void* source;  // [batch, groups * k_channels, source_h, source_w], any strides
  const void* packed;  // weights as pack/ leaves them
  const void* bias;    // [groups * n_channels], contiguous, or null
  void* result;        // [batch, groups * n_channels, result_h, result_w], NCHW or channels_last
  int64_t source_stride[4];  // elements
  int64_t result_stride[4];
  int32_t batch;
  int32_t k_channels, n_channels;  // per group: GEMM K without taps, GEMM N
  int32_t source_h, source_w;
  int32_t result_h, result_w;
  int32_t result_step_h, result_step_w;  // from one position of a phase to the next
  Walk walk;
  int64_t source_elements;  // of the whole source, which is dense where the walk is kVectors
  bool result_pairs;  // channels_last: pairs of channels may be stored
  bool column_pairs;  // NCHW: pairs of columns may be stored

  // Tiles: counts along each digit of a tile's number, fastest first.
  Divisor channel_tiles, w_tiles, w_splits, h_phases, h_tiles, group_tiles;
  int32_t num_tiles;
  int32_t tile_n, tile_h, tile_w;
  int32_t split_phases;  // W phases of a tile

  // The operand tile: planes [kTerms][2 * k_steps][sub-tile][image][window row][pitch][16 bytes].
  int32_t rows, pitch;  // of a window
  int32_t plane_positions;
  int32_t k_steps;     // steps of K that a stage holds
  int32_t num_chunks;  // stages that a tile takes
  int32_t source_slots;
  int32_t weight_slots;
  int32_t slot_taps;  // taps of a weight slot, at most
  int32_t tap_bytes;  // packed weights of one tap in a stage
  int32_t packed_chunk_step[kMaxWindows];   // bytes from one stage's weights to the next, per H phase
  int64_t packed_phase_begin[kMaxWindows];  // bytes, of an H phase within a channel tile's weights
  int64_t packed_tile_step;                 // bytes, from one channel tile's weights to the next

  // For finding a position.
  Divisor by_rows, by_images, by_sub_w, by_pitch, by_tile_w, by_tile_h;
  int32_t num_places;  // positions of a plane that mean something

  // A raw slot: [channel][window row][raw_pitch elements].
  int32_t raw_lines, raw_pitch;
  bool gather;             // positions lie elsewhere in a raw channel than in a plane
  int32_t first_column;    // of the source, from the tile's corner
  uint32_t vector_mask;    // elements of 16 bytes - 1 where rows begin anywhere in a vector, otherwise 0
  int32_t raw_slots, raw_bytes, raw_channel_bytes;  // raw slots, their bytes, and those of a channel in one
  // What a thread copies: a vector or element of a row, from so many channels of the stage.
  int32_t copy_units, copy_parts, copy_channels;
  Divisor by_copy_units, by_line_units;
  // What a thread converts: 1 or 2 positions, so many planes of the stage.
  int32_t convert_units, unit_positions, convert_parts, convert_planes;
  Divisor by_convert_units;

  // Shared memory, in bytes.
  int32_t raw_begin, weights_begin, staged_begin, lists_begin, barriers_begin;

  int32_t num_blocks;
  // Blocks of 64 positions: 8 groups of 8 neighbours, block_row_step positions apart.
  int32_t block_row_step;
  int32_t block_origin[kMaxBlocks];  // positions of the operand tile
  int32_t staged_positions;          // of the tile
  int32_t staged_stride;             // floats, from one staged channel to the next

  TapProgram program;
};

}  // namespace convt::wgmma_sm90a
