// The kernels that instances/ compiles, one file for each class.
#pragma once

#include "plan/patch_instances.h"

namespace convt::patch_sm90a {

// The two kernels of an instance, as the runtime takes them.
struct Kernels {
  const void* pack;
  const void* convolve;
};

#define CONVT_ROW(symbol, ...) Kernels symbol();
CONVT_PATCH_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

#define CONVT_ROW(symbol, ...) const void* symbol();
CONVT_PATCH_DIRECT_INSTANCES(CONVT_ROW)
CONVT_PATCH_RUNS_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::patch_sm90a
