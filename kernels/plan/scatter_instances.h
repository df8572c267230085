// The kernel instances of the scatter engine: the one list that dispatch (launch/scatter.cpp), planning and tests read.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// A kernel of the scatter engine, for sums of `slots` position rows with `columns` columns each: phases along H,
// channels and taps along W.
struct ScatterInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t slots;
  int32_t columns;
};

// Operands are sums of two TF32 numbers.
constexpr bool is_split(const ScatterInstance& instance) { return instance.precision == Precision::kTf32x3; }

// X(symbol, dtype, precision, slots, columns)
#define CONVT_SCATTER_INSTANCES(X)         \
  X(tf32_2x24, kFloat32, kTf32, 2, 24)     \
  X(tf32_3x32, kFloat32, kTf32, 3, 32)     \
  X(bf16_2x24, kBFloat16, kHalf, 2, 24)    \
  X(bf16_3x32, kBFloat16, kHalf, 3, 32)    \
  X(f16_2x24, kFloat16, kHalf, 2, 24)      \
  X(f16_3x32, kFloat16, kHalf, 3, 32)      \
  X(tf32x3_2x24, kFloat32, kTf32x3, 2, 24) \
  X(tf32x3_3x32, kFloat32, kTf32x3, 3, 32)

inline constexpr ScatterInstance kScatterInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, slots, columns) \
  {"scatter_" #symbol, DataType::dtype, Precision::precision, slots, columns},
    CONVT_SCATTER_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumScatterInstances = sizeof(kScatterInstances) / sizeof(kScatterInstances[0]);

}  // namespace convt
