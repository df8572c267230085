// What a kernel of small layers is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "direct/layout.h"

namespace convt::direct {

struct DirectParams : ThinDirectLayout {
  const void* source;  // any strides
  const void* weight;  // any strides
  const void* bias;    // contiguous, or null
  void* result;
};

}  // namespace convt::direct
