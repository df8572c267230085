// A line in a file of thin/instances/ compiles one depthwise kernel: see thin/instance.cuh.
#pragma once

#include "plan/thin_depthwise_instances.h"
#include "thin/depthwise.cuh"
#include "thin/depthwise_forward.cuh"
#include "thin/instances.h"

namespace convt::thin {

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

}  // namespace convt::thin

#define CONVT_THIN_DEPTHWISE_INSTANCE(symbol)                          \
  namespace convt::thin {                                              \
  const void* symbol() { return depthwise_symbol<k_thin_##symbol>(); } \
  }
