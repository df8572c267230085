// Kernel parameters of the correlate family. correlate_sm90a/launch.cpp fills them; they are constant for the whole
// grid.
#pragma once

#include <cuda.h>

#include "correlate_sm90a/layout.h"

namespace convt::correlate_sm90a {

struct Params {
  // kRows, kBoxes: [image][row][channel][column], or for grad_output with `flat` [image][1][channel][index in the
  // plane]. kPixels: [image][row][column][channel].
  CUtensorMap x, gy;
  CorrelateLayout layout;
  float* slabs;  // [chunk][kernel_h][kernel_w][channels][group_co]
  float* bias_slabs;  // [chunk][bias_rows][channels of grad_output], or null if not requested
  bool adds;  // accumulate into the slabs of a previous launch
};

}  // namespace convt::correlate_sm90a
