// One line per file in thin/instances/ compiles one depthwise kernel: see thin/instance.cuh.
#pragma once

#include "plan/thin_instances.h"
#include "thin/depthwise.cuh"
#include "thin/instances.h"

#define CONVT_THIN_DEPTHWISE_INSTANCE(symbol)                                                    \
  namespace convt::thin {                                                                        \
  const void* symbol() {                                                                         \
    constexpr ThinDepthwiseInstance kInstance = kThinDepthwiseInstances[k_thin_##symbol];        \
    using InstanceTraits = DepthwiseTraits<kInstance.dtype, kInstance.kernel, kInstance.stride>; \
    constexpr bool kOfInput = kInstance.direction == Direction::kGradInput;                      \
    return reinterpret_cast<const void*>(&depthwise_kernel<InstanceTraits, kOfInput>);           \
  }                                                                                              \
  }
