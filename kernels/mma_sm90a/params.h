// What a kernel of the mma engine is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "mma_sm90a/layout.h"

namespace convt::mma_sm90a {

struct Params : MmaLayout {
  const void* source;  // [batch, groups * group_ci, h.in, w.in], any strides
  const void* weight;  // any strides
  const void* bias;    // [groups * group_co], contiguous, or null
  void* result;        // [batch, groups * group_co, h.out, w.out], dense, NCHW, on a multiple of 16 bytes
};

}  // namespace convt::mma_sm90a
