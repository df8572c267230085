// Which results a tile of the NHWC engine owns, and what a thread holds of them.
#pragma once

#include "element/operand.cuh"
#include "hopper/tiles.cuh"
#include "nhwc_sm90a/params.h"

namespace convt::nhwc_sm90a {

using hopper::first_tile;
using hopper::tile_step;

inline constexpr int kConsumerThreads = 128 * kNhwcConsumers;

// Traits::kN result channels of kBlocksValue * 64 positions a warpgroup, kStepsValue steps of K a stage.
template <typename TraitsValue, int kBlocksValue, int kStepsValue>
struct Shape {
  using Traits = TraitsValue;
  using Element = typename Traits::Element;
  static constexpr int kN = Traits::kN;
  static constexpr int kBlocks = kBlocksValue;
  static constexpr int kSteps = kStepsValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kRowBytes = nhwc_row_bytes(kSteps);  // of a place of a stage
  static constexpr int kStageChannels = kRowBytes / kElement;
  static constexpr int kPartBytes = nhwc_part_bytes(kN, kSteps);  // of a tap's weights
  static constexpr int kTapBytes = kPartBytes * Traits::kTerms;
  static constexpr int kPositions = 64 * kNhwcConsumers * kBlocks;
  static constexpr int kStagedRowBytes = nhwc_staged_row_bytes(kN, kElement);
  static constexpr int kStagedBytes = kPositions * kStagedRowBytes;  // of a buffer
  static constexpr int kGroupSteps = kSteps / 2;  // whose products are issued together
};

struct Tile {
  int32_t channel_tile;
  int32_t phase_h, phase_w;
  int32_t column, row, image;  // its first position
};

// Neighbouring tiles share their source in L2: channels first, then phases, positions. Phases have different numbers of
// taps: others come first from place to place, or a CTA would have the same one of every place.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  number = params.channel_tiles(number, &tile.channel_tile);
  int32_t phase, turn;
  number = params.phases(number, &phase);
  params.phases(number, &turn);
  phase += turn;
  if (phase >= params.phases.value) phase -= params.phases.value;
  tile.phase_h = params.phases_w(phase, &tile.phase_w);
  number = params.w_tiles(number, &tile.column);
  tile.image = params.h_tiles(number, &tile.row) * params.tile_n;
  tile.row *= params.tile_h;
  tile.column *= params.tile_w;
  return tile;
}

// The first of the windows that a tile reads.
__device__ __forceinline__ int32_t first_window(const Params& params, const Tile& tile) {
  return tile.phase_h * params.phases_w.value + tile.phase_w;
}

// A position of a tile: column, row and image from its first; false where there is none.
struct Position {
  int32_t column, row, image;
};
__device__ __forceinline__ bool position_of_tile(const Params& params, int32_t number, Position* position) {
  position->image = params.by_image(params.by_row(number, &position->column), &position->row);
  return position->image < params.tile_n;
}

// The first position of a warp's sixteen in block `block`.
template <typename Shape>
__device__ __forceinline__ int32_t positions_before(int32_t warp, int block) {
  return (warp / 4 * Shape::kBlocks + block) * 64 + warp % 4 * 16;
}

// Block b, sum 4 * j + 2 * h + i is column 8 * j + 2 * (lane % 4) + i of the weights, of position lane / 4 + 8 * h of
// the warp's sixteen.
template <typename Shape>
struct Accumulators {
  float r[Shape::kBlocks][Shape::kN / 2];
};

// Windows, and of each of them the chunks of channels: neighbours in memory are read one after the other.
struct Stages {
  int32_t begin, end;
  int32_t first_window, first_chunk;  // of the first
};
__device__ __forceinline__ Stages stages_of_split(const Params& params, int32_t part) {
  const int32_t begin = params.split_begin[part];
  return {begin, params.split_begin[part + 1], begin / params.num_chunks, begin % params.num_chunks};
}

}  // namespace convt::nhwc_sm90a
