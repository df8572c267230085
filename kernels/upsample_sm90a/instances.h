// The kernel instances of the upsample engine: the one list that dispatch, planning, tests and instances/
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

struct UpsampleInstance {
  const char* name;
  DataType dtype;
  Precision precision;
};

// X(symbol, dtype, precision)
#define CONVT_UPSAMPLE_INSTANCES(X) \
  X(tf32, kFloat32, kTf32)          \
  X(bf16, kBFloat16, kHalf)         \
  X(f16, kFloat16, kHalf)

inline constexpr UpsampleInstance kUpsampleInstances[] = {
#define CONVT_ROW(symbol, dtype, precision) {"upsample_" #symbol, DataType::dtype, Precision::precision},
    CONVT_UPSAMPLE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt

namespace convt::upsample_sm90a {

CONVT_UPSAMPLE_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::upsample_sm90a
