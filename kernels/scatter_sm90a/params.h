// What the scatter engine's kernel is launched with. Filled by scatter_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "scatter_sm90a/layout.h"

namespace convt::scatter_sm90a {

struct Params : ScatterLayout {
  // The source as dimensions [image][channel][row][column], columns innermost; zeros outside of it. A box is
  // [strips][box_channels][1][pitch]: a stage in one copy. In channels_last [image][row][column][channel], and a box is
  // [strips][1][pitch][box_channels]: 128 bytes of channels of each position, swizzled, for TF32 rounded.
  CUtensorMap source;
  const void* weight;  // [c_in, c_out, kernel_h, kernel_w]
  const void* bias;    // [c_out], contiguous, or null
  void* result;        // [batch, c_out, h.out, w.out]
  int64_t weight_stride[4];  // elements
  int64_t result_stride[4];  // elements; columns are neighbours, or in channels_last channels
};

}  // namespace convt::scatter_sm90a
