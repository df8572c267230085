// The compiled SIMT kernels, by the names of plan/simt_instances.h. Each returns the kernel's host symbol.
#pragma once

#include "plan/simt_instances.h"

namespace convt::simt {

#define CONVT_ROW(symbol, ...) const void* symbol();
CONVT_SIMT_INSTANCES(CONVT_ROW)
CONVT_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::simt
