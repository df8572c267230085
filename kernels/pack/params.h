// What the weight packing is launched with. Filled by launch/operands.cpp.
#pragma once

#include <cstdint>

#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt::pack {

// A block's, of taps at most.
inline constexpr int32_t kPackTaps = 16;
inline constexpr int32_t kPackColumns = 32;  // divides all channel tiles
inline constexpr int32_t kPackThreads = 256;

struct Params {
  const void* w;  // the weight, any strides
  void* packed;   // [group][channel tile][H phase][stage][tap][part][step of K][2][block_n][16 bytes]
  int64_t k_stride, n_stride;  // elements between channels that are GEMM K and GEMM N
  int64_t group_stride;        // elements from one group to the next
  int64_t kh_stride, kw_stride;
  int32_t groups, k_channels, n_channels;  // per group
  int32_t channel_tiles, block_n;
  int32_t k_steps, num_chunks;
  int32_t tap_bytes;
  bool by_blocks;  // of several taps, otherwise each tap and stage is one
  bool whole_taps;  // by blocks of all taps, which lie together in memory, on vectors
  bool whole_runs;  // the same of 3 x 3 kernels
  bool four_taps;   // all of 2 x 2 kernels, which lie together in memory
  int32_t tap_blocks, column_blocks;  // of a stage
  int32_t block_taps, taps_log2;                  // of a block, rounded up
  int32_t interleaved;  // blocks of 8 columns whose pairs are neighbouring channels: 1, 2 or 4
  bool rows;       // a tap is [block_n][planes][16 bytes] instead, in the order of tensor_swizzle()
  bool k_vectors;  // 16 bytes of memory are of one plane
  bool n_vectors;  // or of neighbouring columns' channels, one block of 8 * `interleaved` of them at most
  int64_t packed_tile_step;
  int64_t packed_phase_begin[kMaxWindows];
  TapProgram program;
};

// Where the packed weights of taps lie, for kernels that read them tap by tap.
struct PackedTaps {
  const void* weights;
  int32_t channel_tiles;             // of a group
  int32_t chunk_step[kMaxWindows];   // bytes from one stage's weights to the next, per H phase
  int64_t phase_begin[kMaxWindows];  // bytes, of an H phase within a channel tile's weights
  int64_t tile_step;                 // bytes, from one channel tile's weights to the next

  static PackedTaps of(const Params& packing) {
    PackedTaps packed{};
    packed.weights = packing.packed;
    packed.channel_tiles = packing.channel_tiles;
    packed.tile_step = packing.packed_tile_step;
    for (int32_t phase = 0; phase < packing.program.phases_h; ++phase) {
      packed.phase_begin[phase] = packing.packed_phase_begin[phase];
      packed.chunk_step[phase] = packing.program.num_taps[phase] * packing.tap_bytes;
    }
    return packed;
  }
};

// The kernel for a class of precision that multiplies on tensor cores.
const void* pack_weights(DataType dtype, Precision precision);

}  // namespace convt::pack
