// Parameters of the weight packing. Set by launch/operands.cpp.
#pragma once

#include <cstdint>

#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt::pack {

// Maximum number of taps per CTA.
inline constexpr int32_t kPackTaps = 16;
inline constexpr int32_t kPackColumns = 32;  // columns per CTA; divides all channel tiles
inline constexpr int32_t kPackThreads = 256;

struct Params {
  const void* w;  // the weight, any strides
  void* packed;   // [group][channel tile][H phase][stage][tap][part][step of K][2][block_n][16 bytes]
  int64_t k_stride, n_stride;  // elements between channels of GEMM K and GEMM N
  int64_t group_stride;        // elements between groups
  int64_t kh_stride, kw_stride;
  int32_t groups, k_channels, n_channels;  // per group
  int32_t channel_tiles, block_n;
  int32_t k_steps, num_chunks;
  int32_t tap_bytes;
  bool by_blocks;  // a CTA packs several taps; otherwise one tap of one stage
  bool whole_taps;  // by_blocks with all taps of a 4 x 4 kernel, contiguous and aligned
  bool whole_runs;  // the same for 3 x 3 kernels
  bool four_taps;   // all taps of a 2 x 2 kernel, contiguous
  int32_t tap_blocks, column_blocks;  // per stage
  int32_t block_taps, taps_log2;                  // taps per CTA; base-2 logarithm, rounded up
  int32_t split;  // if not 0, channel n >= split of GEMM N is channel n - split, split_offset elements further
  int64_t split_offset;
  int32_t interleaved;  // blocks of 8 columns whose pairs are contiguous channels: 1, 2 or 4
  bool rows;       // a tap is [block_n][planes][16 bytes] instead, with tensor_swizzle()
  bool k_vectors;  // 16 contiguous bytes belong to one plane
  bool n_vectors;  // 16 contiguous bytes are result channels, of one block of 8 * `interleaved` columns
  int64_t packed_tile_step;
  int64_t packed_phase_begin[kMaxWindows];
  TapProgram program;
};

// Layout of packed weights, for kernels that read them tap by tap.
struct PackedTaps {
  const void* weights;
  int32_t channel_tiles;             // per group
  int32_t chunk_step[kMaxWindows];   // bytes between stages, per H phase
  int64_t phase_begin[kMaxWindows];  // byte offset of an H phase in a channel tile's weights
  int64_t tile_step;                 // bytes between channel tiles

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

// The packing kernel of a tensor-core class.
const void* pack_weights(DataType dtype, Precision precision);

}  // namespace convt::pack
