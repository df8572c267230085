// What a kernel of the gradient of the input is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "thin/grad_input_layout.h"
#include "thin/layout.h"

namespace convt::thin {

struct GradInputParams : ThinGradInputLayout {
  const void* gy;      // [batch, groups * group_co, h.out, w.out], any strides
  const void* weight;  // [groups * group_ci, group_co, h.kernel, w.kernel], any strides
  void* gx;            // [batch, groups * group_ci, h.in, w.in], NCHW or channels_last
  int64_t gy_stride[4];
  int64_t weight_stride[4];
  int64_t gx_stride[4];
  ThinPitches pitches;
  Reciprocal by_slots;
  Reciprocal by_kernel_h;
  Reciprocal by_tiles_w;
  Reciprocal by_tiles_h;
  int32_t load_lanes_log2;  // threads that copy one row together
  int32_t vector;           // columns that a thread reads at once: 1, 2 or 4
  bool copy_vectors;        // columns are neighbours in memory
};

}  // namespace convt::thin
