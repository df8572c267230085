// The launchers of all families. The engines define them. Included by launch.cpp and by tests. Must not know: torch.
#pragma once

#include <cuda_runtime.h>

#include "families/families.h"
#include "launch/launch.h"

namespace convt {

// `tile` is the plan's tile.
#define CONVT_ROW(Tile, name, ...)                                                                              \
  void launch_##name(const ConvTProblem& problem, const Plan& plan, const Tile& tile, const Pointers& pointers, \
                     cudaStream_t stream);
CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt
