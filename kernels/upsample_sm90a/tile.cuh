// Which results a CTA of the upsample engine owns.
#pragma once

#include "element/arithmetic.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "upsample_sm90a/params.h"

namespace convt::upsample_sm90a {

// Three warpgroups take turns in position rows, multiply and store; another one loads.
inline constexpr int kWarps = 12;
inline constexpr int kConsumerThreads = 32 * kWarps;
inline constexpr int kLoadThreads = 128;
static_assert(kConsumerThreads + kLoadThreads == kUpsampleThreads);

template <DataType kDataTypeValue>
struct Shape {
  using Element = typename element::ElementOf<kDataTypeValue>::type;
  static constexpr DataType kDataType = kDataTypeValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kVector = 16 / kElement;                      // elements
  static constexpr int kPitch = kUpsamplePitch[kElement / 4];        // of a channel in a slot
  static constexpr int kSteps = kUpsampleSteps[kElement / 4];        // of K, of a tap row
  static constexpr int kOperandBytes = kSteps * kUpsampleStepBytes;  // of a quad and a tap row
};

// The weights that a CTA holds.
struct Operand {
  int32_t phase_h, octet, channel;
  int32_t tap_h, taps_h;  // the first tap along H, and how many there are, a stride apart
  int32_t source_h;       // source row of tap tap_h, from a position row
  int32_t source_w;       // the first quad's earlier source column, from a position
  int32_t split;          // columns from that to the second quad's
};

__device__ __forceinline__ Operand operand_of(const UpsampleLayout& params, int32_t number) {
  Operand operand;
  number = params.stride_h(number, &operand.phase_h);
  operand.channel = params.octets(number, &operand.octet) * kUpsampleChannels;
  operand.source_h = params.stride_h(operand.phase_h + params.h.padding, &operand.tap_h);
  const int32_t left = params.h.kernel - operand.tap_h;
  operand.taps_h = left <= 0 ? 0 : left > params.h.stride ? 2 : 1;
  const int32_t column = 8 * operand.octet + params.w.padding;
  operand.source_w = column / params.w.stride - 1;
  operand.split = (column + 4) / params.w.stride - 1 - operand.source_w;
  return operand;
}

struct Tile {
  int32_t image, column;  // column: of the first position
  int32_t row, rows;      // positions
};

__device__ __forceinline__ Tile tile_of(const UpsampleLayout& params, int32_t number) {
  Tile tile;
  number = params.column_tiles(number, &tile.column);
  tile.column *= kUpsamplePositions;
  tile.image = params.row_tiles(number, &tile.row);
  tile.row *= params.tile_rows;
  tile.rows = min(params.tile_rows, params.rows - tile.row);
  return tile;
}

// A source row is number n of all that a CTA brings: the slot that it lies in, and how often that was filled before.
struct Place {
  int32_t slot;
  uint32_t parity;
};

__device__ __forceinline__ Place place_of(const UpsampleLayout& params, int32_t number) {
  Place place;
  place.parity = params.slots(number, &place.slot) & 1;
  return place;
}

}  // namespace convt::upsample_sm90a
