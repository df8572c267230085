// Windows: coordinates of one axis that a stage of shared memory contains for a tile. Called by: layouts and kernels of
// simt/ and thin/.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// Layout of a stage's slice of the input along one axis. Taps are numbered by ascending coordinate: from the last tap,
// or from the first if shift_step is negative. Tap t reads element t * step + position * position_step. Either taps
// overlap, with elements `unit` coordinates apart, or each tap has its own copy of the tile (`copies`).
struct Window {
  int32_t step;
  int32_t position_step;
  int32_t extent;
  int32_t unit;
  bool copies;
};

CONVT_HOST_DEVICE inline Window copied_window(int32_t num_taps, int32_t tile) {
  return Window{tile, 1, num_taps * tile, 1, true};
}

CONVT_HOST_DEVICE inline Window overlapping_window(int32_t num_taps, int32_t shift_step, int32_t position_step,
                                                   int32_t tile) {
  const int32_t distance = shift_step < 0 ? -shift_step : shift_step;
  int32_t unit = 1, step = distance;
  if (num_taps == 1) {
    unit = position_step;
    step = 1;
  } else if (position_step != 1) {  // avoids divisions in kernels, which call this for every stage
    unit = greatest_common_divisor(distance, position_step);
    step = distance / unit;
  }
  position_step = unit == position_step ? 1 : position_step / unit;
  const int64_t extent = (num_taps - int64_t{1}) * step + (tile - int64_t{1}) * position_step + 1;
  // An extent above 32 bits is longer than copies, which callers then use.
  return Window{step, position_step, extent < INT32_MAX ? static_cast<int32_t>(extent) : INT32_MAX, unit, false};
}

// Rows may overlap at any distance.
CONVT_HOST_DEVICE inline Window row_window(int32_t num_taps, int32_t shift_step, int32_t position_step,
                                           int32_t tile_h) {
  const Window overlapping = overlapping_window(num_taps, shift_step, position_step, tile_h);
  return overlapping.extent <= int64_t{num_taps} * tile_h ? overlapping : copied_window(num_taps, tile_h);
}

// Columns are read four at a time, so they overlap only if adjacent taps and adjacent positions are one element apart.
CONVT_HOST_DEVICE inline Window column_window(int32_t num_taps, int32_t shift_step, int32_t position_step,
                                              int32_t tile_w) {
  const Window overlapping = overlapping_window(num_taps, shift_step, position_step, tile_w);
  return overlapping.step == 1 && overlapping.position_step == 1 ? overlapping : copied_window(num_taps, tile_w);
}

}  // namespace convt
