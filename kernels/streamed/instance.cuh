// One line per kernel of streamed sources, which both directions may share: see thin/instance.cuh.
#pragma once

#include "streamed/instances.h"
#include "streamed/kernel.cuh"

#define CONVT_THIN_STREAMED_INSTANCE(symbol)                                                                         \
  namespace convt::streamed {                                                                                        \
  const void* symbol() {                                                                                             \
    [[maybe_unused]] constexpr ThinStreamedInstance kInstance = kThinStreamedInstances[k_thin_##symbol];             \
    return reinterpret_cast<const void*>(&streamed_kernel<kInstance.channels, kInstance.positions, kInstance.taps>); \
  }                                                                                                                  \
  }
