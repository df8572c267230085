// A line in a file of thin/instances/ compiles one kernel of outer products: see thin/instance.cuh.
#pragma once

#include "thin/instances.h"
#include "thin/outer_weight.cuh"

#define CONVT_THIN_OUTER_WEIGHT_INSTANCE(symbol)                                                               \
  namespace convt::thin {                                                                                      \
  const void* symbol() {                                                                                       \
    [[maybe_unused]] constexpr ThinOuterWeightInstance kInstance = kThinOuterWeightInstances[k_thin_##symbol]; \
    return reinterpret_cast<const void*>(&outer_weight_kernel<kInstance.width>);                               \
  }                                                                                                            \
  }
