// A line in a file of thin/instances/ compiles one depthwise kernel: see thin/instance.cuh.
#pragma once

#include "depthwise/forward.cuh"
#include "depthwise/gradients.cuh"
#include "depthwise/instances.h"

namespace convt::depthwise {

template <int32_t kIndex>
const void* depthwise_symbol() {
  constexpr ThinDepthwiseInstance kInstance = kThinDepthwiseInstances[kIndex];
  if constexpr (kInstance.direction == Direction::kForward) {
    using Traits = DepthwiseForwardTraits<kInstance.dtype, kInstance.kernel, kInstance.stride>;
    return reinterpret_cast<const void*>(&depthwise_forward_kernel<Traits>);
  } else {
    constexpr bool kOfInput = kInstance.direction == Direction::kGradInput;
    using Traits = DepthwiseTraits<kInstance.dtype, kInstance.kernel, kInstance.stride, kOfInput>;
    return reinterpret_cast<const void*>(&depthwise_kernel<Traits>);
  }
}

}  // namespace convt::depthwise

#define CONVT_THIN_DEPTHWISE_INSTANCE(symbol)                          \
  namespace convt::depthwise {                                         \
  const void* symbol() { return depthwise_symbol<k_thin_##symbol>(); } \
  }
