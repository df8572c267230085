// What launches each family (plan/families.h): launch_<name>(), called by launch(), and what the launchers share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "launch/kernel.h"
#include "launch/launch.h"
#include "plan/plan.h"
#include "problem/problem.h"

namespace convt {

// Tensors may begin anywhere; copies of several elements may not.
inline bool is_aligned(const void* address, int64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

// `tile` is the plan's.
#define CONVT_ROW(Tile, name, ...)                                                                              \
  void launch_##name(const ConvTProblem& problem, const Plan& plan, const Tile& tile, const Pointers& pointers, \
                     cudaStream_t stream);
CONVT_FAMILIES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt
