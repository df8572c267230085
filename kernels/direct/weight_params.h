// What the kernel of small layers' gradient of the weight is launched with. Filled by launch/, constant for the grid.
#pragma once

#include "direct/weight_layout.h"

namespace convt::direct {

struct DirectWeightParams : ThinDirectWeightLayout {
  const void* x;   // any strides
  const void* gy;  // any strides
  void* weight;
};

}  // namespace convt::direct
