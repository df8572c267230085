// Which results a tile of the window engine owns, and what a warp and a thread hold of them.
#pragma once

#include "element/operand.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "window_sm90a/params.h"

namespace convt::window_sm90a {

// Traits::kN result channels, kernels of kWindowKernelH x kKernelWValue taps.
template <typename TraitsValue, int kKernelWValue>
struct Shape {
  using Traits = TraitsValue;
  using Element = typename Traits::Element;
  static constexpr int kN = Traits::kN;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kVector = 16 / kElement;  // elements
  static constexpr int kKernelH = kWindowKernelH;
  static constexpr int kKernelW = kKernelWValue;
  static constexpr int kRows = window_warp_rows(kN, kElement, Traits::kTerms);  // results of a warp
  static constexpr int kSourceRows = kRows + kKernelH - 1;      // that it reads
  static constexpr bool kShifts = window_serves_classes(kN, kElement, Traits::kTerms, kKernelW);
  static constexpr int kPartBytes = 32 * kN;  // of a tap's weights
  static constexpr int kTapBytes = kPartBytes * Traits::kTerms;
  static constexpr int kWeightBytes = window_weight_bytes(kN, Traits::kTerms, kKernelW);
  static constexpr int kStagedParts = window_staged_parts(kN, kElement, Traits::kTerms, kKernelW);
  static constexpr int kStagedChannels = kN / kStagedParts;
  static constexpr int kStagedPitch = window_staged_pitch(kN, kElement, Traits::kTerms);
  static constexpr int kStagedBytes = window_staged_bytes(kN, kElement, Traits::kTerms, kKernelW);
  static constexpr int kBiasBegin = kStagedChannels * kStagedPitch * kElement;  // in a warpgroup's staged bytes
};

struct Tile {
  int32_t channel_tile;
  int32_t group;
  int32_t column_tile;
  int32_t column, row;  // of its first result; the first tile's may be negative
  int32_t image;
};

// Channel tiles share their source in L2, neighbours along a row and rows of tiles their halos.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  number = params.channel_tiles(number, &tile.channel_tile);
  number = params.group_tiles(number, &tile.group);
  number = params.column_tiles(number, &tile.column_tile);
  tile.image = params.row_tiles(number, &tile.row);
  tile.row *= params.advance_h;
  tile.column = params.begin_w + tile.column_tile * params.advance_w;
  return tile;
}

// This thread's sums: of row `row` of its warp, column 4 * (lane / 4) + 2 * block + h, channel 8 * j + 2 * (lane % 4) +
// i in r[row][block][4 * j + 2 * h + i].
template <typename Shape>
struct Accumulators {
  float r[Shape::kRows][2][Shape::kN / 2];
};

// Where a warp of a warpgroup lies in the tile: which 32 columns, and which of the warps above each other.
__device__ __forceinline__ int32_t warp_column(const Params& params, int32_t warp) {
  return warp & ((1 << params.warps_w_log2) - 1);
}
__device__ __forceinline__ int32_t warp_row(const Params& params, int32_t warp) { return warp >> params.warps_w_log2; }

}  // namespace convt::window_sm90a
