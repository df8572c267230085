// The kernels that instances/ compiles, one file for each class.
#pragma once

#include "plan/upsample_instances.h"

namespace convt::upsample_sm90a {

// A kernel, as the runtime takes it.
#define CONVT_ROW(symbol, ...) const void* symbol();
CONVT_UPSAMPLE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW

}  // namespace convt::upsample_sm90a
