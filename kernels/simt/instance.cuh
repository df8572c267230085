// A line in a file of simt/instances/ compiles one kernel. Kernels of one shape and direction share a file: their code
// differs little from dtype to dtype, and what a file compiles is compressed together. The template arguments come from
// simt/instances.h.
#pragma once

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
