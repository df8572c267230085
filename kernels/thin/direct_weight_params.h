// What the kernel of small layers' gradient of the weight is launched with. Filled by launch/, constant for the grid.
#pragma once

#include "plan/thin_direct_weight.h"

namespace convt::thin {

struct DirectWeightParams : ThinDirectWeightLayout {
  const void* x;   // any strides
  const void* gy;  // any strides
  void* weight;
};

}  // namespace convt::thin
