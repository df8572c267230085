// A line in a file of thin/instances/ compiles one kernel, as in simt/instance.cuh. The template arguments come from
// thin/instances.h.
#pragma once

#include "thin/instances.h"
#include "thin/kernel.cuh"

#define CONVT_THIN_INSTANCE(symbol)                                                         \
  namespace convt::thin {                                                                   \
  const void* symbol() {                                                                    \
    constexpr ThinInstance kInstance = kThinInstances[k_thin_##symbol];                     \
    using InstanceTraits = Traits<kInstance.dtype, kInstance.outputs, kInstance.positions>; \
    return reinterpret_cast<const void*>(&thin_kernel<InstanceTraits>);                     \
  }                                                                                         \
  }
