// The compiled kernels of 1 x 1 layers: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

struct PointwiseInstance {
  const char* name;
  DataType dtype;
};

// X(symbol, dtype)
#define CONVT_POINTWISE_INSTANCES(X) X(ieee_f32_thread, kFloat32)

inline constexpr PointwiseInstance kPointwiseInstances[] = {
#define CONVT_ROW(symbol, dtype) {"pointwise_" #symbol, DataType::dtype},
    CONVT_POINTWISE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt

namespace convt::pointwise {

CONVT_POINTWISE_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::pointwise
