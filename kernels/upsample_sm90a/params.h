// What the upsample engine's kernel is launched with. Filled by upsample_sm90a/launch.cpp, constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "upsample_sm90a/layout.h"

namespace convt::upsample_sm90a {

struct Params : UpsampleLayout {
  // The source as dimensions [image][channel][row][column], columns innermost; zeros outside of it. A box is
  // [1][kUpsampleChannels][1][pitch]: a slot in one copy.
  CUtensorMap map;
  const void* source;  // [batch, c_in, h.in, w.in]
  const void* weight;  // [c_in, c_out, kernel_h, kernel_w]
  const void* bias;  // [c_out], contiguous, or null
  void* result;  // [batch, c_out, h.out, w.out]
  int64_t source_stride[4];  // elements
  int64_t weight_stride[4];
  int64_t result_stride[3];  // of images, channels, rows; columns are neighbours
  bool by_boxes;  // the source is copied by `map`, else by elements
  bool weight_on_vectors;  // four taps along W are one load
};

}  // namespace convt::upsample_sm90a
