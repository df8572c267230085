// Coordinates of a window's elements. Called by the kernels of simt/ and thin/.
#pragma once

#include "problem/problem.h"
#include "tiling/window.h"

namespace convt::tiling {

// Coordinate of a window's element, relative to element 0.
__device__ __forceinline__ int32_t window_coordinate(const Window& window, const Axis& axis, int32_t tile,
                                                     int32_t index) {
  if (!window.copies) return index * window.unit;
  const int32_t copy = index / tile;
  return copy * axis.dilation + (index - copy * tile) * axis.stride;
}

}  // namespace convt::tiling
