// The kernels that instances/ compiles, one file for each class.
#pragma once

#include "plan/flat_instances.h"

namespace convt::flat_sm90a {

// The two kernels of an instance, as the runtime takes them.
struct Kernels {
  const void* pack;
  const void* convolve;
};

#define CONVT_ROW(symbol, ...) Kernels symbol();
CONVT_FLAT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::flat_sm90a
