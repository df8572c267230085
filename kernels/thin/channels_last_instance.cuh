// The files thin/instances/channels_last_*.cu compile the kernels of depthwise layers in channels_last.
#pragma once

#include "plan/thin_depthwise_instances.h"
#include "thin/channels_last_forward.cuh"
#include "thin/channels_last_grad_input.cuh"
#include "thin/instances.h"

namespace convt::thin {

// Rows on their way: as many as were fastest without spilled registers (docs/engines/thin.md).
template <int32_t kIndex>
const void* channels_last_symbol() {
  constexpr ThinChannelsLastInstance kInstance = kThinChannelsLastInstances[kIndex];
  constexpr bool kForward = kInstance.direction == Direction::kForward;
  constexpr bool kFloat = kInstance.dtype == DataType::kFloat32;
  constexpr int kRowsAhead = kForward && kFloat && kInstance.stride > 1 ? 1 : 2;
  using Traits = ChannelsLastTraits<kInstance.dtype, kInstance.kernel, kInstance.stride, kInstance.vector,
                                    kInstance.positions, kRowsAhead>;
  constexpr int kBlocks = channels_last_blocks_per_sm(kInstance.dtype, kInstance.direction);
  if constexpr (kForward) {
    return reinterpret_cast<const void*>(&channels_last_forward_kernel<Traits, kBlocks>);
  } else {
    return reinterpret_cast<const void*>(&channels_last_grad_input_kernel<Traits, kBlocks>);
  }
}

}  // namespace convt::thin

#define CONVT_THIN_CHANNELS_LAST_INSTANCE(symbol)                          \
  namespace convt::thin {                                                  \
  const void* symbol() { return channels_last_symbol<k_thin_##symbol>(); } \
  }
