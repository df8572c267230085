// Plan -> what the wgmma engine's two kernels are launched with.
// Called by: wgmma_sm90a/launch.cpp. Must not know: torch, how the plan was chosen.
#pragma once

#include "launch/operands.h"
#include "wgmma_sm90a/layout.h"
#include "wgmma_sm90a/params.h"

namespace convt {

struct WgmmaLaunch {
  PackLaunch pack;
  wgmma_sm90a::Params convolve;
};

// `source` and `result` by direction; `packed` has plan.packed_bytes.
WgmmaLaunch make_wgmma_launch(const ConvTProblem& problem, const WgmmaTile& plan, const void* source, const void* w,
                              const void* bias, void* result, void* packed);

}  // namespace convt
