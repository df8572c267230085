// What a file of instances/ with kernels for runs of grad_output consists of.
#pragma once

#include "patch_sm90a/instances.h"
#include "patch_sm90a/runs.cuh"

#define CONVT_PATCH_RUNS_INSTANCE(symbol, Element, channels) \
  const void* convt::patch_sm90a::symbol() { return reinterpret_cast<const void*>(&convolve_runs<Element, channels>); }
