// What a file of instances/ with kernels for weights as they are consists of.
#pragma once

#include "patch_sm90a/direct.cuh"
#include "patch_sm90a/instances.h"

#define CONVT_PATCH_DIRECT_INSTANCE(symbol, Element, consumers)                 \
  const void* convt::patch_sm90a::symbol() {                                    \
    return reinterpret_cast<const void*>(&convolve_direct<Element, consumers>); \
  }
