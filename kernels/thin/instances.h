// The compiled thin kernels, by the names of plan/thin*_instances.h. Each returns the kernel's host symbol.
#pragma once

#include "plan/thin_depthwise_instances.h"
#include "plan/thin_instances.h"

namespace convt::thin {

#define CONVT_ROW(symbol, ...) const void* symbol();
CONVT_THIN_INSTANCES(CONVT_ROW)
CONVT_THIN_GRAD_INPUT_INSTANCES(CONVT_ROW)
CONVT_THIN_DEPTHWISE_INSTANCES(CONVT_ROW)
CONVT_THIN_CHANNELS_LAST_INSTANCES(CONVT_ROW)
CONVT_THIN_DIRECT_INSTANCES(CONVT_ROW)
CONVT_THIN_GATHER_INSTANCES(CONVT_ROW)
CONVT_THIN_STREAMED_INSTANCES(CONVT_ROW)
CONVT_THIN_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
CONVT_THIN_OUTER_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::thin
