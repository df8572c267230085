// A line in a file of thin/instances/ compiles one kernel of the gradient of the input: see thin/instance.cuh.
#pragma once

#include "thin/grad_input.cuh"
#include "thin/instances.h"

#define CONVT_THIN_GRAD_INPUT_INSTANCE(symbol)                                                        \
  namespace convt::thin {                                                                             \
  const void* symbol() {                                                                              \
    constexpr ThinGradInputInstance kInstance = kThinGradInputInstances[k_thin_##symbol];             \
    using InstanceTraits = GradInputTraits<kInstance.dtype, kInstance.channels, kInstance.positions>; \
    return reinterpret_cast<const void*>(&grad_input_kernel<InstanceTraits>);                         \
  }                                                                                                   \
  }
