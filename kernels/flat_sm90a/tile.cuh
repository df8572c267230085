// Which results a tile of the flat engine owns, and what a warpgroup holds of them.
#pragma once

#include "element/operand.cuh"
#include "flat_sm90a/layout.h"
#include "flat_sm90a/params.h"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::flat_sm90a {

struct Tile {
  int32_t block_tile;  // the CTA's channels
  int32_t phase_h;
  int32_t group;
  int32_t begin;  // the first position
};

#ifdef CONVT_HAS_WGMMA

// Neighbouring tiles share their source in L2: channels first, then H phases, groups, positions.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  number = params.block_tiles(number, &tile.block_tile);
  number = params.h_phases(number, &tile.phase_h);
  number = params.group_tiles(number, &tile.group);
  tile.begin = number * params.tile_positions;
  return tile;
}

#endif

// 64 channels of kPositions positions in kPhases W phases, for each of kConsumers warpgroups. A product takes kColumns
// of the positions: with 128 registers of a thread at the launch, ptxas has none with all 256.
template <typename TraitsValue, int kPhasesValue, int kConsumersValue, int kSumsValue>
struct Shape {
  using Traits = TraitsValue;
  static constexpr int kPhases = kPhasesValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kPositions = kSumsValue / kPhases;
  static constexpr int kBlocks = kPositions == 256 && kConsumers == 1 ? 2 : 1;
  static constexpr int kColumns = kPositions / kBlocks;
};

// The first of the runs whose taps a stage has, one for each W phase.
template <typename Shape>
__device__ __forceinline__ int32_t first_run(const Params& params, const Tile& tile, int32_t sub) {
  return params.sub_tiles > 1 ? sub : tile.phase_h * Shape::kPhases;
}

// The number of this thread's warpgroup, as a value that the compiler knows to be the same for the whole warp.
template <typename Shape>
__device__ __forceinline__ int32_t consumer_of_thread() {
  return Shape::kConsumers == 1 ? 0 : __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 128, 0);
}

template <typename Shape>
struct Accumulators {
  float r[Shape::kPhases * Shape::kBlocks][Shape::kColumns / 2];  // [phase][block]

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < Shape::kPhases * Shape::kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kColumns / 2; ++j) r[i][j] = 0;
    }
  }

  // Number `i` of the four sums of 8 neighbouring positions: channels 8 apart, then neighbours.
  __device__ __forceinline__ float of(int phase, int positions, int i) const {
    constexpr int kOfBlock = Shape::kColumns / 8;
    return r[phase * Shape::kBlocks + positions / kOfBlock][4 * (positions % kOfBlock) + i];
  }
};

}  // namespace convt::flat_sm90a
