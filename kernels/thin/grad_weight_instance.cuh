// A line in a file of thin/instances/ compiles one kernel of the gradient of the weight: see thin/instance.cuh.
#pragma once

#include "thin/grad_weight.cuh"
#include "thin/instances.h"

#define CONVT_THIN_GRAD_WEIGHT_INSTANCE(symbol)                                                           \
  namespace convt::thin {                                                                                 \
  const void* symbol() {                                                                                  \
    constexpr ThinGradWeightInstance kInstance = kThinGradWeightInstances[k_thin_##symbol];               \
    using InstanceTraits =                                                                                \
        GradWeightTraits<kInstance.dtype, kInstance.thread_ci, kInstance.thread_co, kInstance.thread_kw>; \
    return reinterpret_cast<const void*>(&grad_weight_kernel<InstanceTraits>);                            \
  }                                                                                                       \
  }
