// The kernels that instances/ compiles, one file for each class and tile.
#pragma once

#include "plan/wgmma_instances.h"

namespace convt::wgmma_sm90a {

// The two kernels of an instance, as cudaLaunchKernel takes them.
struct Kernels {
  const void* pack;
  const void* convolve;
};

#define CONVT_ROW(symbol, ...) Kernels symbol();
CONVT_WGMMA_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::wgmma_sm90a
