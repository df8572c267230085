// A line in a file of thin/instances/ compiles one kernel of gathered terms, which both directions share: see
// thin/instance.cuh.
#pragma once

#include "streamed/gather.cuh"
#include "streamed/instances.h"

#define CONVT_THIN_GATHER_KERNEL(symbol)                                                             \
  const void* symbol() {                                                                             \
    [[maybe_unused]] constexpr ThinGatherInstance kInstance = kThinGatherInstances[k_thin_##symbol]; \
    return reinterpret_cast<const void*>(&gather_kernel<kInstance.channels, kInstance.positions>);   \
  }

#define CONVT_THIN_GATHER_INSTANCE(sums)                 \
  namespace convt::streamed {                            \
  CONVT_THIN_GATHER_KERNEL(ieee_f32_gather_##sums)       \
  CONVT_THIN_GATHER_KERNEL(grad_input_f32_gather_##sums) \
  }
