// What a kernel of the Hopper engine is launched with. Filled by launch/wgmma.cpp, constant for the whole grid.
// "Source" and "result" are input and output, or for grad_input grad_output and grad_input.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "plan/tap_program.h"

namespace convt::wgmma_sm90a {

inline constexpr int32_t kMaxBlocks = 8;  // of 64 positions, in a tile

// How loaders walk a stage of the source.
enum class Walk : int32_t {
  kVectors,   // 16 bytes of neighbouring columns
  kWords,     // 4 bytes of neighbouring columns: one float32, two of half precision
  kElements,  // half precision one by one
  kChannels,  // 16 bytes of neighbouring channels (channels_last)
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
  int32_t num_units;  // what one walk step copies: in a stage's channel, for kChannels in a stage
  bool result_pairs;  // channels_last: pairs of channels may be stored
  bool column_pairs;  // NCHW: pairs of columns may be stored

  // Tiles: counts along each digit of a tile's number, fastest first.
  Divisor channel_tiles, w_tiles, w_splits, h_phases, h_tiles, group_tiles;
  int32_t num_tiles;
  int32_t tile_n, tile_h, tile_w;
  int32_t split_phases;  // W phases of a tile

  // The operand tile: planes [kParts][2 * k_steps][sub-tile][image][window row][pitch][16 bytes].
  int32_t rows, columns, pitch;  // of a window
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

  // For finding a position; units are the vectors, words or elements of a line.
  Divisor by_units, by_rows, by_images, by_sub_w, by_planes, by_pitch, by_tile_w, by_tile_h;

  // Shared memory, in bytes.
  int32_t raw_begin, weights_begin, staged_begin, barriers_begin;
  int32_t raw_bytes, raw_channel_bytes;  // of a raw slot, and of a channel in it

  int32_t num_blocks;
  // Blocks of 64 positions: 8 groups of 8 neighbours, block_row_step positions apart.
  int32_t block_row_step;
  int32_t block_origin[kMaxBlocks];  // positions of the operand tile
  int32_t staged_positions;          // of the tile
  int32_t staged_stride;             // floats, from one staged channel to the next

  TapProgram program;
};

}  // namespace convt::wgmma_sm90a
