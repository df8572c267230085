// The kernels that instances/ compiles, one file for each class.
#pragma once

#include "plan/strided_instances.h"

namespace convt::strided_sm90a {

// The two kernels of an instance, as the runtime takes them.
struct Kernels {
  const void* pack;
  const void* convolve;
};

#define CONVT_ROW(symbol, ...) Kernels symbol();
CONVT_STRIDED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::strided_sm90a
