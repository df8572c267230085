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

// X(symbol, dtype, precision, block_n, kernel_w): what a file of instances/ has.
#define CONVT_WINDOW_TF32(X)           \
  X(tf32_64x3, kFloat32, kTf32, 64, 3) \
  X(tf32_64x5, kFloat32, kTf32, 64, 5) \
  X(tf32_64x7, kFloat32, kTf32, 64, 7) \
  X(tf32_32x3, kFloat32, kTf32, 32, 3) \
  X(tf32_32x5, kFloat32, kTf32, 32, 5) \
  X(tf32_32x7, kFloat32, kTf32, 32, 7)
#define CONVT_WINDOW_TF32X3(X)             \
  X(tf32x3_64x3, kFloat32, kTf32x3, 64, 3) \
  X(tf32x3_64x5, kFloat32, kTf32x3, 64, 5) \
  X(tf32x3_64x7, kFloat32, kTf32x3, 64, 7) \
  X(tf32x3_32x3, kFloat32, kTf32x3, 32, 3) \
  X(tf32x3_32x5, kFloat32, kTf32x3, 32, 5) \
  X(tf32x3_32x7, kFloat32, kTf32x3, 32, 7)
#define CONVT_WINDOW_HALF(X)            \
  X(bf16_64x3, kBFloat16, kHalf, 64, 3) \
  X(bf16_64x5, kBFloat16, kHalf, 64, 5) \
  X(bf16_64x7, kBFloat16, kHalf, 64, 7) \
  X(bf16_32x3, kBFloat16, kHalf, 32, 3) \
  X(bf16_32x5, kBFloat16, kHalf, 32, 5) \
  X(bf16_32x7, kBFloat16, kHalf, 32, 7) \
  X(f16_64x3, kFloat16, kHalf, 64, 3)   \
  X(f16_64x5, kFloat16, kHalf, 64, 5)   \
  X(f16_64x7, kFloat16, kHalf, 64, 7)   \
  X(f16_32x3, kFloat16, kHalf, 32, 3)   \
  X(f16_32x5, kFloat16, kHalf, 32, 5)   \
  X(f16_32x7, kFloat16, kHalf, 32, 7)
#define CONVT_WINDOW_INSTANCES(X) CONVT_WINDOW_TF32(X) CONVT_WINDOW_TF32X3(X) CONVT_WINDOW_HALF(X)

inline constexpr WindowInstance kWindowInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, block_n, kernel_w) \
  {"window_" #symbol, DataType::dtype, Precision::precision, block_n, kernel_w},
    CONVT_WINDOW_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumWindowInstances = count_of(kWindowInstances);

}  // namespace convt

namespace convt::window_sm90a {

CONVT_WINDOW_INSTANCES(CONVT_DECLARE_PACKED_KERNEL)

}  // namespace convt::window_sm90a
