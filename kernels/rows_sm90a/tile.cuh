// Device code that both families share: kernel traits and tile indices.
#pragma once

#include "element/operand.cuh"
#include "hopper/kernel.cuh"
#include "rows_sm90a/params.h"

namespace convt::rows_sm90a {

using hopper::first_tile;
using hopper::tile_step;

// Constants of a StridedShape or a WindowShape.
template <auto kShapeValue>
struct Traits
    : element::ProductTraits<element::operand_of(kShapeValue.dtype, kShapeValue.precision), kShapeValue.block_n> {
  static constexpr auto kShape = kShapeValue;
  static constexpr int kElement = kShape.element();
  static constexpr int kStageChannels = kShape.channels();
  static constexpr int kTapBytes = kShape.tap_bytes();
};

// Digits of a tile's index, fastest first, so that tiles with common source data run at the same time and share it in
// L2: channel tiles and H phases share their source, adjacent tiles their halos.
struct Place {
  int32_t channel_tile, phase, group, inner, outer, image;
};

template <typename Params>
__device__ __forceinline__ Place place_of(const Params& params, int32_t number) {
  Place place{};
  number = params.channel_tiles(number, &place.channel_tile);
  if constexpr (requires { params.phase_tiles; }) number = params.phase_tiles(number, &place.phase);
  number = params.group_tiles(number, &place.group);
  number = params.inner_tiles(number, &place.inner);
  place.image = params.outer_tiles(number, &place.outer);
  return place;
}

}  // namespace convt::rows_sm90a
