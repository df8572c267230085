// Parameters of the scatter kernel. Set by scatter_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "scatter_sm90a/layout.h"

namespace convt::scatter_sm90a {

struct Params : ScatterLayout {
  // The source with dimensions [image][channel][row][column], columns innermost, zero outside. A stage is one copy:
  // [strips][box_channels][1][pitch]. In channels_last the dimensions are [image][row][column][channel], and a box is
  // [strips][1][pitch][box_channels]: 128 bytes of channels per position, swizzled, and rounded in TF32.
  CUtensorMap source;
  const void* weight;  // [c_in, c_out, kernel_h, kernel_w]
  const void* bias;    // [c_out], contiguous, or null
  void* result;        // [batch, c_out, h.out, w.out]
  int64_t weight_stride[4];  // elements
  int64_t result_stride[4];  // elements; columns, or in channels_last channels, are contiguous
};

}  // namespace convt::scatter_sm90a
