// The results of a tile of the nhwc family, and the fragment of a thread.
#pragma once

#include "element/operand.cuh"
#include "hopper/kernel.cuh"
#include "nhwc_sm90a/params.h"
#include "reduce/cluster.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA
using reduce::ClusterSlice;
#endif

inline constexpr int kConsumerThreads = 128 * kNhwcConsumers;

// Traits::kN result channels, kBlocksValue * 64 positions per warpgroup, kStepsValue steps of K per stage.
template <typename TraitsValue, int kCtasValue, int kBlocksValue, int kStepsValue>
struct Shape {
  static constexpr int kCtas = kCtasValue;  // per SM
  using Traits = TraitsValue;
  using Element = typename Traits::Element;
  static constexpr int kN = Traits::kN;
  static constexpr int kBlocks = kBlocksValue;
  static constexpr int kSteps = kStepsValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kRowBytes = nhwc_row_bytes(kSteps);  // of a place in a stage
  static constexpr int kStageChannels = kRowBytes / kElement;
  static constexpr int kTermBytes = nhwc_term_bytes(kN, kSteps);  // of a tap's weights
  static constexpr int kTapBytes = kTermBytes * Traits::kTerms;
  static constexpr int kPositions = 64 * kNhwcConsumers * kBlocks;
  static constexpr int kStagedRowBytes = nhwc_staged_row_bytes(kN, kElement);
  static constexpr int kStagedBytes = kPositions * kStagedRowBytes;  // per buffer
  static constexpr int kGroupSteps = kSteps / 2;  // steps whose products are issued as a group
};

struct Tile {
  int32_t weights;  // index of its packed weights: its channel tile, counted over all groups
  int32_t group, channel_tile;
  int32_t phase_h, phase_w;
  int32_t column, row, image;  // first position
};

// Iterates over a CTA's units: tiles, then a part of a tile of the last wave. W phases that are interleaved in rows are
// consecutive units of one CTA.
class UnitWalk {
 public:
  __device__ __forceinline__ explicit UnitWalk(const Params& params)
      : params_(params), number_(hopper::first_tile(params) * params.interleaved_phases_w.value) {}

  __device__ __forceinline__ bool exists() const { return number_ < params_.num_units; }
  __device__ __forceinline__ int32_t number() const { return number_; }
  __device__ __forceinline__ void advance() {
    const int32_t count = params_.interleaved_phases_w.value;
    ++number_;
    if (count > 1) {
      int32_t phase;
      params_.interleaved_phases_w(number_, &phase);
      if (phase != 0) return;
    }
    number_ += (hopper::tile_step() - 1) * count;
  }

 private:
  const Params& params_;
  int32_t number_;
};

// Order of tiles: channels fastest, then phases, then positions, so that consecutive tiles share their source in L2.
// Phases have different numbers of taps, so each place starts with a different phase. Otherwise a CTA would get the
// same phase at every place.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  int32_t together;
  number = params.interleaved_phases_w(number, &together);
  number = params.channel_tiles(number, &tile.weights);
  tile.group = params.group_tiles(tile.weights, &tile.channel_tile);
  int32_t phase, shift;
  number = params.phases(number, &phase);
  params.phases(number, &shift);
  phase += shift;
  if (phase >= params.phases.value) phase -= params.phases.value;
  tile.phase_h = params.phases_w(phase, &tile.phase_w);
  tile.phase_w += together;
  number = params.w_tiles(number, &tile.column);
  tile.image = params.h_tiles(number, &tile.row) * params.tile_n;
  tile.row *= params.tile_h;
  tile.column *= params.tile_w;
  return tile;
}

// Index of the first window of a tile.
__device__ __forceinline__ int32_t first_window(const Params& params, const Tile& tile) {
  return tile.phase_h * params.windows_of_row + tile.phase_w;
}

// A position of a tile: column, row and image relative to its first. Returns false if it does not exist.
struct Position {
  int32_t column, row, image;
};
__device__ __forceinline__ bool position_of_tile(const Params& params, int32_t number, Position* position) {
  position->image = params.by_image(params.by_row(number, &position->column), &position->row);
  return position->image < params.tile_n;
}

// Index of the first of a warp's sixteen positions in block `block`.
template <typename Shape>
__device__ __forceinline__ int32_t positions_before(int32_t warp, int block) {
  return (warp / 4 * Shape::kBlocks + block) * 64 + warp % 4 * 16;
}

// In block b, accumulator 4 * j + 2 * h + i holds column 8 * j + 2 * (lane % 4) + i of the weights, for position lane /
// 4 + 8 * h of the warp's sixteen.
template <typename Shape>
struct Accumulators {
  float r[Shape::kBlocks][Shape::kN / 2];

  // Accumulator of the thread's column number `column`.
  __device__ __forceinline__ float of(int block, int h, int column) const {
    return r[block][4 * (column / 2) + 2 * h + column % 2];
  }
};

// Iterates over the stages of a tile: windows, and in each window the chunks of channels, so that consecutive stages
// read adjacent memory.
struct StageWalk {
  int32_t window, chunk;

  __device__ __forceinline__ void advance(const Params& params) {
    if (++chunk == params.num_chunks) {
      chunk = 0;
      ++window;
    }
  }
};
struct Stages {
  int32_t begin, end;
  StageWalk first;  // relative to the tile's first window

  __device__ __forceinline__ StageWalk walk(int32_t first_window) const {
    return {first_window + first.window, first.chunk};
  }
};
// Iterates over the taps of a window in the order of their weights, with the place in the box for position (0, 0).
class TapWalk {
 public:
  __device__ __forceinline__ void begin(const Window& window) {
    num_w_ = window.num_w;
    place_ = window.first;
    column_ = 0;
    column_step_ = window.column_step;
    row_step_ = window.row_step - num_w_ * column_step_;
  }
  __device__ __forceinline__ void advance() {
    place_ += column_step_;
    if (++column_ == num_w_) {
      column_ = 0;
      place_ += row_step_;
    }
  }
  __device__ __forceinline__ int32_t place() const { return place_; }

 private:
  int32_t place_, column_, num_w_, column_step_, row_step_;  // row_step_: from the end of a row of taps
};

// A share of a tile's stages: of a CTA of a cluster, or of a part. Unshared tiles have one share with all stages.
__device__ __forceinline__ Stages stages_of_share(const Params& params, int32_t share) {
  const int32_t begin = params.share_begin[share];
  return {begin, params.share_begin[share + 1], {begin / params.num_chunks, begin % params.num_chunks}};
}

// The stages that a CTA multiplies of each of its tiles. In a cluster, its share.
__device__ __forceinline__ Stages stages_of_tiles(const Params& params, int32_t rank) {
  if (params.splits > 1) return stages_of_share(params, rank);
  return {0, params.num_chunks * params.num_windows, {0, 0}};
}

__device__ __forceinline__ bool is_part(const Params& params, int32_t number) { return number >= params.whole_tiles; }

// A unit's tile, and the stages of it that the CTA multiplies.
struct Unit {
  int32_t tile;
  Stages stages;
};
__device__ __forceinline__ Unit unit_of(const Params& params, const Stages& stages_of_tiles, int32_t number) {
  if (!is_part(params, number)) return {number, stages_of_tiles};
  int32_t part;
  const int32_t divided = params.k_splits(number - params.whole_tiles, &part);
  return {params.whole_tiles + divided, stages_of_share(params, part)};
}

}  // namespace convt::nhwc_sm90a
