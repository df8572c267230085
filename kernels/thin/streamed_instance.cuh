// One line per kernel of streamed sources, which both directions may share: see thin/instance.cuh.
#pragma once

#include "plan/thin_instances.h"
#include "thin/instances.h"
#include "thin/streamed.cuh"

#define CONVT_THIN_STREAMED_INSTANCE(symbol)                                                                         \
  namespace convt::thin {                                                                                            \
  const void* symbol() {                                                                                             \
    [[maybe_unused]] constexpr ThinStreamedInstance kInstance = kThinStreamedInstances[k_thin_##symbol];             \
    return reinterpret_cast<const void*>(&streamed_kernel<kInstance.channels, kInstance.positions, kInstance.taps>); \
  }                                                                                                                  \
  }
