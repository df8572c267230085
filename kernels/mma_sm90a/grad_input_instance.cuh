// What a file of instances/ of the gradient of the input consists of: see mma_sm90a/instance.cuh.
#pragma once

#include "mma_sm90a/grad_input.cuh"
#include "mma_sm90a/instances.h"

#define CONVT_MMA_GRAD_INPUT_INSTANCE(symbol)                                                           \
  const void* convt::mma_sm90a::symbol() {                                                              \
    [[maybe_unused]] constexpr MmaGradInputInstance kInstance = kMmaGradInputInstances[k_mma_##symbol]; \
    using InstanceTraits =                                                                              \
        Traits<kInstance.dtype, kInstance.row_tiles, kInstance.position_tiles, is_split(kInstance)>;    \
    return reinterpret_cast<const void*>(&grad_input<InstanceTraits, kInstance.vectors>);               \
  }
