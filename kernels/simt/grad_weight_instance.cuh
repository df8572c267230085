// A line in a file of simt/instances/ compiles one kernel of the gradient of the weight: see simt/instance.cuh.
#pragma once

#include "simt/grad_weight.cuh"
#include "simt/instances.h"

#define CONVT_GRAD_WEIGHT_INSTANCE(symbol)                                                                \
  namespace convt::simt {                                                                                 \
  const void* symbol() {                                                                                  \
    constexpr GradWeightInstance kInstance = kGradWeightInstances[k_##symbol];                            \
    using InstanceTraits =                                                                                \
        GradWeightTraits<kInstance.dtype, kInstance.thread_ci, kInstance.thread_co, kInstance.thread_kw>; \
    return reinterpret_cast<const void*>(&grad_weight_kernel<InstanceTraits>);                            \
  }                                                                                                       \
  }
