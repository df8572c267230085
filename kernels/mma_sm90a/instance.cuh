// What a file of instances/ consists of. The template arguments come from mma_sm90a/instances.h.
#pragma once

#include "mma_sm90a/instances.h"
#include "mma_sm90a/kernel.cuh"

#define CONVT_MMA_INSTANCE(symbol)                                                                    \
  const void* convt::mma_sm90a::symbol() {                                                            \
    constexpr MmaInstance kInstance = kMmaInstances[k_mma_##symbol];                                  \
    using InstanceTraits = Traits<kInstance.dtype, kInstance.column_tiles, kInstance.position_tiles>; \
    return reinterpret_cast<const void*>(&forward<InstanceTraits>);                                   \
  }
