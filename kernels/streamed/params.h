// What a kernel of streamed sources is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "streamed/layout.h"

namespace convt::streamed {

struct StreamedParams : ThinStreamedLayout {
  const float* source;  // any strides; of vectors, channels are neighbours and begin on 16 bytes
  const float* weight;  // any strides
  const float* bias;    // contiguous, or null
  float* result;
  bool result_on_vectors;  // begins on 16 bytes
};

}  // namespace convt::streamed
