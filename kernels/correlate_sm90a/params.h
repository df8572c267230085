// What the correlate engine's kernels are launched with. Filled by correlate_sm90a/launch.cpp, constant for the whole
// grid.
#pragma once

#include <cuda.h>

#include "correlate_sm90a/layout.h"

namespace convt::correlate_sm90a {

struct Params {
  // Rows: [image][row][channel][column], grad_output also [image][1][channel][place in the plane]. Pixels:
  // [image][row][column][channel].
  CUtensorMap x, gy;
  CorrelateLayout layout;
  float* slabs;  // [chunk][kernel_h][kernel_w][channels][group_co]
  float* bias_slabs;  // [chunk][bias_rows][channels of grad_output], or null where nobody asks for them
  bool adds;  // to the slabs of the images before these
};

}  // namespace convt::correlate_sm90a
