// What a kernel of outer products is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "plan/divisor.h"
#include "thin/outer_weight_layout.h"

namespace convt::thin {

struct OuterWeightParams : ThinOuterWeightLayout {
  const float* x;   // [batch, h.in, w.in, c_in]: images and rows anywhere
  const float* gy;  // [batch, h.out, w.out, c_out], likewise
  float* slabs;     // [chunks][c_in, h.kernel, w.kernel, c_out], contiguous
  int64_t x_image;  // elements from one to the next
  int64_t x_row;
  int64_t gy_image;
  int64_t gy_row;
  int32_t x_copy;  // elements of a copy to shared memory: 4, 2 or 1
  int32_t gy_copy;
  Divisor by_x_vectors;  // copies of a pixel
};

}  // namespace convt::thin
