// The kernel instances of the scatter engine: the lists that dispatch, planning, tests and the files of instances/
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of the scatter engine, with accumulators for `slots` position rows of `columns` columns each: phases along
// H, channels and taps along W.
struct ScatterInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t slots;
  int32_t columns;
  bool channels_last;  // otherwise NCHW
};

// Operands are sums of two TF32 numbers.
constexpr bool is_split(const ScatterInstance& instance) { return instance.precision == Precision::kTf32x3; }

// X(symbol, dtype, precision, slots, columns, channels_last); of a dtype, precision and layout the smaller ones first.
#define CONVT_SCATTER_ROWS(X, type, dtype, precision) \
  X(type##_2x24, dtype, precision, 2, 24, false)      \
  X(type##_3x32, dtype, precision, 3, 32, false)
#define CONVT_SCATTER_ROWS_TF32X3(X)              \
  X(tf32x3_2x24, kFloat32, kTf32x3, 2, 24, false) \
  X(tf32x3_2x40, kFloat32, kTf32x3, 2, 40, false) \
  X(tf32x3_3x32, kFloat32, kTf32x3, 3, 32, false)
#define CONVT_SCATTER_PIXELS(X, type, dtype, precision) \
  X(type##_pixels_2x24, dtype, precision, 2, 24, true)  \
  X(type##_pixels_2x40, dtype, precision, 2, 40, true)  \
  X(type##_pixels_3x32, dtype, precision, 3, 32, true)
#define CONVT_SCATTER_INSTANCES(X)                \
  CONVT_SCATTER_ROWS(X, tf32, kFloat32, kTf32)    \
  CONVT_SCATTER_ROWS(X, bf16, kBFloat16, kHalf)   \
  CONVT_SCATTER_ROWS(X, f16, kFloat16, kHalf)     \
  CONVT_SCATTER_ROWS_TF32X3(X)                    \
  CONVT_SCATTER_PIXELS(X, tf32, kFloat32, kTf32)  \
  CONVT_SCATTER_PIXELS(X, bf16, kBFloat16, kHalf) \
  CONVT_SCATTER_PIXELS(X, f16, kFloat16, kHalf)   \
  CONVT_SCATTER_PIXELS(X, tf32x3, kFloat32, kTf32x3)

inline constexpr ScatterInstance kScatterInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, slots, columns, channels_last) \
  {"scatter_" #symbol, DataType::dtype, Precision::precision, slots, columns, channels_last},
    CONVT_SCATTER_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumScatterInstances = count_of(kScatterInstances);

}  // namespace convt

namespace convt::scatter_sm90a {

CONVT_SCATTER_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::scatter_sm90a
