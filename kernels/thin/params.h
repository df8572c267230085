// What a thin kernel is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "thin/layout.h"

namespace convt::thin {

struct Params : ThinLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;    // [groups * group_co], contiguous, or null
  void* result;        // [batch, groups * group_co, h.out, w.out], NCHW or channels_last
};

}  // namespace convt::thin
