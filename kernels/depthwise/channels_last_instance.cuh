// The files thin/instances/channels_last_*.cu compile the kernels of depthwise layers in channels_last.
#pragma once

#include "depthwise/channels_last_forward.cuh"
#include "depthwise/channels_last_grad_input.cuh"
#include "depthwise/channels_last_grad_weight.cuh"
#include "depthwise/instances.h"

namespace convt::depthwise {

template <int32_t kIndex>
const void* channels_last_symbol() {
  constexpr ThinChannelsLastInstance kInstance = kThinChannelsLastInstances[kIndex];
  using Traits = ChannelsLastTraits<kInstance.dtype, kInstance.kernel, kInstance.stride, kInstance.vector,
                                    kInstance.positions, kInstance.rows_ahead>;
  if constexpr (kInstance.direction == Direction::kForward) {
    return reinterpret_cast<const void*>(&channels_last_forward_kernel<Traits>);
  } else if constexpr (kInstance.direction == Direction::kGradWeight) {
    return reinterpret_cast<const void*>(&channels_last_grad_weight_kernel<Traits>);
  } else {
    return reinterpret_cast<const void*>(&channels_last_grad_input_kernel<Traits>);
  }
}

}  // namespace convt::depthwise

#define CONVT_THIN_CHANNELS_LAST_INSTANCE(symbol)                          \
  namespace convt::depthwise {                                             \
  const void* symbol() { return channels_last_symbol<k_thin_##symbol>(); } \
  }
