// What a file of instances/ of the gradient of the weight consists of. The template arguments come from
// mma_sm90a/instances.h.
#pragma once

#include "mma_sm90a/grad_weight.cuh"
#include "mma_sm90a/instances.h"

#define CONVT_MMA_GRAD_WEIGHT_INSTANCE(symbol)                                                              \
  const void* convt::mma_sm90a::symbol() {                                                                  \
    constexpr MmaGradWeightInstance kInstance = kMmaGradWeightInstances[k_mma_##symbol];                    \
    using InstanceTraits =                                                                                  \
        GradWeightTraits<kInstance.dtype, kInstance.row_tiles, kInstance.column_tiles, kInstance.operands>; \
    return reinterpret_cast<const void*>(&grad_weight<InstanceTraits>);                                     \
  }
