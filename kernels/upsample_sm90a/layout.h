// How the upsample engine (upsample_sm90a/) divides a problem and lies in shared memory: layers whose kernel is two
// strides wide, with few channels, in NCHW.
//
// Positions are counted from the result's own origin, so that what a position row stores begins where memory's rows do.
// A CTA owns an *operand*, the weights of one phase along H, an *octet* of phases along W (eight neighbouring columns
// of the result) and a block of result channels, and walks tiles of position rows of 64 columns. Padding along W is a
// multiple of four, so that each half of an octet, a *quad*, reads the same two source columns for all of its phases,
// and no zero weight meets the source. Called by: upsample_sm90a/plan.cpp, upsample_sm90a/launch.cpp, the kernel,
// tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "problem/problem.h"

namespace convt {

// The upsample engine's tile.
struct UpsampleTile {
  int32_t instance;  // index into kUpsampleInstances
  int32_t tile_rows;  // of positions
  int32_t shares;  // CTAs with the same weights
  int32_t slots;  // source rows in shared memory

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("tile_h", tile_rows);
    field("shares", shares);
    field("slots", slots);
  }
};

inline constexpr int32_t kUpsamplePositions = 64;  // of a source row, that a product takes
inline constexpr int32_t kUpsampleChannels = 24;  // of the source, and of a block of the result's
inline constexpr int32_t kUpsampleColumns = 96;  // of a product: four phases of a block's channels
inline constexpr int32_t kUpsampleStepBytes = 32 * kUpsampleColumns;  // of weights for a step of K
inline constexpr int32_t kUpsampleThreads = 512;
inline constexpr int32_t kUpsampleLeastSlots = 4;  // for source rows; a position row reads two
// Of half precision, and of float32: steps of K of a tap row, 32 bytes each, and elements from one channel of a source
// row in shared memory to the next. A product's positions read 66 columns, from a multiple of 16 bytes on.
inline constexpr int32_t kUpsampleSteps[2] = {3, 6};
inline constexpr int32_t kUpsamplePitch[2] = {80, 72};

struct UpsampleLayout {
  int32_t batch, c_in, c_out;
  Axis h, w;

  Divisor octets, channel_blocks, stride_h;
  int32_t num_operands, shares;  // shares: CTAs of each operand

  int32_t rows, tile_rows;  // position rows
  Divisor column_tiles, row_tiles;
  int32_t num_tiles;  // of an operand

  int32_t pitch;  // kUpsamplePitch
  Divisor slots;  // of source rows
  int32_t slot_bytes;
  int32_t weights_begin, bias_begin, barriers_begin;  // in shared memory
  int32_t shared_bytes;
};

// Everything that follows from a plan's tile; false where it is not legal.
bool make_upsample_layout(const ConvTProblem& problem, const UpsampleTile& plan, UpsampleLayout* layout);

}  // namespace convt
