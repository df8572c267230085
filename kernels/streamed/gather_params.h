// What a kernel of gathered layers is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "streamed/gather_layout.h"

namespace convt::streamed {

struct GatherParams : ThinGatherLayout {
  const float* source;  // any strides
  const float* weight;  // any strides
  const float* bias;    // contiguous, or null
  float* result;
  bool result_on_vectors;  // begins on 16 bytes
};

}  // namespace convt::streamed
