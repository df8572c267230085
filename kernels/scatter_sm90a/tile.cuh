// The results of a tile of the scatter kernel.
#pragma once

#include "element/arithmetic.cuh"
#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "scatter_sm90a/params.h"

namespace convt::scatter_sm90a {

// One warpgroup multiplies, three or four warps sum and store, one warp loads.
inline constexpr int kConsumerThreads = kScatterConsumerThreads;

// Accumulators for kSlots position rows with kColumns columns. kSplit: operands are sums of two TF32 numbers (tf32x3).
template <DataType kDataTypeValue, Precision kPrecision, int kSlotsValue, int kColumnsValue, bool kChannelsLastValue>
struct Shape {
  using Element = typename element::ElementOf<kDataTypeValue>::type;
  static constexpr DataType kDataType = kDataTypeValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr bool kSplit = kPrecision == Precision::kTf32x3;
  static constexpr bool kChannelsLast = kChannelsLastValue;
  static constexpr int kTerms = kSplit ? 2 : 1;  // terms of the weights
  static constexpr int kStoreThreads = scatter_store_threads(kSplit);
  static constexpr int kWorkThreads = scatter_work_threads(kSplit);
  static constexpr int kThreads = scatter_threads(kSplit);
  static constexpr int kSlots = kSlotsValue;
  static constexpr int kColumns = kColumnsValue;
  static constexpr int kN = kSlots * kColumns;
  static constexpr int kVector = 16 / kElement;        // channels of a core matrix
  static constexpr int kStepChannels = 32 / kElement;  // per step of K
  static constexpr int kSlotAccumulators = kColumns / 2;  // per thread
};

struct Tile {
  int32_t image;
  int32_t row, end_row;        // positions
  int32_t column, end_column;  // positions
  int32_t source_column;
};

__device__ __forceinline__ Tile tile_of(const ScatterLayout& params, int32_t number) {
  Tile tile;
  int32_t column_tile;
  number = params.column_tiles(number, &column_tile);
  tile.image = params.row_tiles(number, &tile.row) * params.strips;
  tile.row = params.first_row + tile.row * params.tile_rows;
  tile.end_row = min(tile.row + params.tile_rows, params.end_row);
  tile.source_column = params.begin_w + column_tile * params.advance_w;
  tile.column = column_tile == 0 ? params.first_column : tile.source_column + params.reach_w;
  tile.end_column = column_tile == params.column_tiles.value - 1
                        ? params.end_column
                        : tile.source_column + params.advance_w + params.reach_w;
  return tile;
}

// The source rows of a tile.
__device__ __forceinline__ int32_t first_source_row(const ScatterLayout& params, const Tile& tile) {
  return tile.row - params.slots + 1;
}
__device__ __forceinline__ bool is_source_row(const ScatterLayout& params, int32_t row) {
  return row >= 0 && row < params.h.in;
}

}  // namespace convt::scatter_sm90a
