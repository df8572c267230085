// Every kernel of the window engine, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of the window engine, for weights of kWindowKernelH x kernel_w taps and tiles of block_n result channels.
struct WindowInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t block_n;
  int32_t kernel_w;
};

// X(symbol, dtype, precision, block_n, kernel_w)
#define CONVT_WINDOW_SHAPES(X, type, dtype, precision) \
  X(type##_64x3, dtype, precision, 64, 3)              \
  X(type##_64x5, dtype, precision, 64, 5)              \
  X(type##_64x7, dtype, precision, 64, 7)              \
  X(type##_32x3, dtype, precision, 32, 3)              \
  X(type##_32x5, dtype, precision, 32, 5)              \
  X(type##_32x7, dtype, precision, 32, 7)
#define CONVT_WINDOW_INSTANCES(X)                   \
  CONVT_WINDOW_SHAPES(X, tf32, kFloat32, kTf32)     \
  CONVT_WINDOW_SHAPES(X, tf32x3, kFloat32, kTf32x3) \
  CONVT_WINDOW_SHAPES(X, bf16, kBFloat16, kHalf)    \
  CONVT_WINDOW_SHAPES(X, f16, kFloat16, kHalf)

inline constexpr WindowInstance kWindowInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, block_n, kernel_w) \
  {"window_" #symbol, DataType::dtype, Precision::precision, block_n, kernel_w},
    CONVT_WINDOW_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumWindowInstances = count_of(kWindowInstances);

}  // namespace convt

namespace convt::window_sm90a {

CONVT_WINDOW_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::window_sm90a
