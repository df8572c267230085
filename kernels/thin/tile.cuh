// The results of a CTA and of a thread.
#pragma once

#include "element/arithmetic.cuh"
#include "thin/layout.h"
#include "tiling/tile.cuh"

namespace convt::thin {

using tiling::Tile;
using tiling::tile_of;

inline constexpr int kMaxThreads = 256;

// Compile-time parameters of a forward instance.
template <DataType kDataType, int kOutputsValue, int kPositionsValue>
struct Traits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kOutputs = kOutputsValue;      // virtual outputs per thread, a multiple of 4
  static constexpr int kQuads = kOutputs / 4;
  static constexpr int kPositions = kPositionsValue;  // positions per thread, with a stride of 32
  static constexpr int kMinBlocks = kPositions * kOutputs > 64                     ? 1
                                    : kPositions * kOutputs > 32 || kPositions > 4 ? 2
                                                                                   : 3;
};

// Work that all tiles of a CTA share.
struct Pass {
  int32_t group;        // first of block_groups
  int32_t num_groups;
  int32_t co;           // first result channel within the group
  int32_t num_co;
  int32_t phase_h;      // the H phase of a pass that owns one phase, or 0
  int32_t num_phases_h;
  int32_t num_filled_h;  // H phases with taps
  int32_t first_tile;
  int32_t end_tile;
};

__device__ __forceinline__ Pass pass_of_block(const Params& params) {
  Pass pass;
  int32_t index = static_cast<int32_t>(blockIdx.x) / params.passes;
  pass.first_tile = index * params.tiles_per_block;
  pass.end_tile = min(pass.first_tile + params.tiles_per_block, params.num_tiles);
  index = static_cast<int32_t>(blockIdx.x) % params.passes;
  const bool split = params.phase_splits > 1;
  pass.phase_h = index % params.phase_splits;
  index /= params.phase_splits;
  pass.num_phases_h = split ? 1 : params.h.out_stride;
  pass.num_filled_h = split ? (params.h.filled >> pass.phase_h) & 1 : params.h.num_filled;
  pass.co = index % params.co_tiles * params.block_co;
  pass.num_co = min(params.block_co, params.group_co - pass.co);
  pass.group = index / params.co_tiles * params.block_groups;
  pass.num_groups = min(params.block_groups, params.groups - pass.group);
  return pass;
}

// Virtual output `index` of a pass: a result channel in one phase. The four virtual outputs of a quad have the same
// phase, and thus the same missing taps. If every phase has every tap, quads may mix phases.
struct VirtualOutput {
  int32_t co;  // within the pass
  int32_t phase_h;
  int32_t phase_w;
  bool exists;
};

// Index of the n-th set bit.
__device__ __forceinline__ int32_t nth_set(uint32_t bits, int32_t n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(static_cast<int32_t>(bits)) - 1;
}

__device__ __forceinline__ VirtualOutput virtual_output(const Params& params, const Pass& pass, int32_t index) {
  VirtualOutput output;
  const int32_t filled = pass.num_filled_h * params.w.num_filled;
  int32_t phase;
  if (params.mixed_quads) {
    phase = index / params.block_co;
    output.co = index - phase * params.block_co;
  } else {
    const int32_t quad = index / 4;
    phase = quad % filled;
    output.co = quad / filled * 4 + index % 4;
  }
  output.exists = phase < filled && output.co < pass.num_co;
  output.phase_w = nth_set(params.w.filled, phase % params.w.num_filled);
  output.phase_h = params.phase_splits > 1 ? pass.phase_h : nth_set(params.h.filled, phase / params.w.num_filled);
  return output;
}

}  // namespace convt::thin
