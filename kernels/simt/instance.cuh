// One line per file in simt/instances/ compiles one kernel, so that they build in parallel. The template
// arguments come from plan/instances.h.
#pragma once

#include "plan/instances.h"
#include "simt/forward.cuh"
#include "simt/instances.h"

#define CONVT_SIMT_INSTANCE(symbol)                                                                              \
  namespace convt::simt {                                                                                        \
  const void* symbol() {                                                                                         \
    constexpr Instance kInstance = kInstances[k_##symbol];                                                       \
    using InstanceTraits =                                                                                       \
        Traits<kInstance.dtype, kInstance.precision, kInstance.direction, kInstance.thread_co, kInstance.quads>; \
    return reinterpret_cast<const void*>(&forward_kernel<InstanceTraits>);                                       \
  }                                                                                                              \
  }
