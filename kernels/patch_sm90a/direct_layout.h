// How the patch engine's kernel for weights as they are (patch_sm90a/direct.cuh) divides a problem and lies in shared
// memory: forward passes in NCHW of layers whose kernel is their stride, whose weights are too few to be worth packing.
//
// In memory the weights are a matrix [channels of the source, columns], a column for every result channel and tap, and
// four neighbouring columns, a *quad*, are the two taps of two rows of a patch or four of a row. Columns are the rows
// of the product, so that weights are its first operand, which registers hold and shared memory may have in any layout;
// positions are its second one. A CTA keeps the source of a tile of positions, transposed as it came, and walks through
// tiles of columns. Called by: patch_sm90a/direct_plan.cpp, patch_sm90a/direct_launch.cpp, the kernel, tests. Must not
// know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "problem/problem.h"

namespace convt {

// The tile of weights as they are.
struct PatchDirectTile {
  int32_t instance;  // index into kPatchDirectInstances
  int32_t consumers;  // warpgroups that multiply;
  int32_t tiles;  // of columns, that a CTA has one after the other
  int32_t slots;  // stages of weights in shared memory

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("consumers", consumers);
    field("tiles", tiles);
    field("slots", slots);
  }
};

inline constexpr int32_t kDirectPositions = 64;  // of a warpgroup
inline constexpr int32_t kDirectColumns = 128;  // of a tile
inline constexpr int32_t kDirectMostChunks = 12;  // of a tile: with more, packing is faster
inline constexpr int32_t kDirectSteps = 4;  // of K in a stage: 128 bytes of every position and column
inline constexpr int32_t kDirectStageBytes = 128 * kDirectColumns;  // weights of a stage
inline constexpr int32_t direct_threads(int32_t consumers) { return 128 * (consumers + 1); }

// Results are staged by warps, so many bytes of each of eight quads at a time, and a gap behind them: a thread's
// results of neighbouring quads then lie in banks of their own.
inline constexpr int32_t kDirectStagedBytes = 256;
inline constexpr int32_t direct_staged_gap(bool pairs, int32_t element) {
  return pairs == (element == 4) ? 64 : pairs ? 32 : 16;
}
inline constexpr int32_t kDirectStagedWarp = 8 * (kDirectStagedBytes + 64);

struct PatchDirectLayout {
  int32_t positions;  // of all images
  Divisor by_image, by_row;  // positions
  Divisor position_tiles;
  int32_t k_channels, n_channels, columns, column_tiles;
  int32_t block_tiles;  // of columns, for a CTA
  int32_t num_chunks;  // stages of a tile
  int32_t kernel_h, kernel_w;
  Divisor channel_quads, row_quads;  // quads of a channel, and of a row of its taps
  int32_t slots;  // for stages of weights
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int32_t shared_bytes;
  int32_t num_blocks;
};

// Everything that follows from a plan's tile; false where it is not legal.
bool make_patch_direct_layout(const ConvTProblem& problem, const PatchDirectTile& plan, PatchDirectLayout* layout);

}  // namespace convt
