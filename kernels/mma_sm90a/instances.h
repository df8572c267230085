// The compiled kernels of the mma engine, by the names of plan/mma_instances.h. Each returns the kernel's host symbol.
#pragma once

#include "plan/mma_instances.h"

namespace convt::mma_sm90a {

#define CONVT_ROW(symbol, ...) const void* symbol();
CONVT_MMA_INSTANCES(CONVT_ROW)
CONVT_MMA_ROWS_INSTANCES(CONVT_ROW)
CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_ROW)
CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::mma_sm90a
