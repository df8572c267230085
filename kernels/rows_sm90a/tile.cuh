// What tiles of both families of the rows engine share on the device.
#pragma once

#include "element/operand.cuh"
#include "hopper/kernel.cuh"
#include "rows_sm90a/params.h"

namespace convt::rows_sm90a {

using hopper::first_tile;
using hopper::tile_step;

// What a kernel's code knows of the StridedShape or the WindowShape that it is compiled for.
template <auto kShapeValue>
struct Traits
    : element::ProductTraits<element::operand_of(kShapeValue.dtype, kShapeValue.precision), kShapeValue.block_n> {
  static constexpr auto kShape = kShapeValue;
  static constexpr int kElement = kShape.element();
  static constexpr int kStageChannels = kShape.channels();
  static constexpr int kTapBytes = kShape.tap_bytes();
};

// The digits of a tile's number. Channel tiles are neighbours, because they share their source in L2; so do H phases
// of `strided`, and tiles beside each other share halos.
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
