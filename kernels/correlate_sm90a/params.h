// What the correlate engine's kernel is launched with. Filled by correlate_sm90a/launch.cpp, constant for the whole
// grid.
#pragma once

#include <cuda.h>

#include "correlate_sm90a/layout.h"
#include "plan/divisor.h"

namespace convt::correlate_sm90a {

struct Params {
  CUtensorMap x;   // [image][row][channel][column]
  CUtensorMap gy;  // the same, or [image][1][channel][place in the plane]
  CorrelateLayout layout;
  float* slabs;  // [chunk][kernel_h][kernel_w][channels][group_co]
};

inline constexpr int32_t kPackRowsThreads = 256;

struct PackRowsParams {
  const void* source;
  void* packed;
  int64_t stride[3];  // elements, of the source: from an image, a channel and a row to the next
  int32_t columns, num_vectors;  // of a row, and of all packed rows
  Divisor by_vectors, by_rows, by_channels;  // of a row, of a channel, of an image
};

}  // namespace convt::correlate_sm90a
