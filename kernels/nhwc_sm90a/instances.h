// Every kernel of the NHWC engine, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

struct NhwcInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t ctas;     // of an SM: one stores while the other multiplies
  int32_t blocks;   // of 64 positions, of each warpgroup that multiplies
  int32_t block_n;  // result channels of a tile
  int32_t k_steps;  // of a stage
};

// X(symbol, dtype, precision, ctas, blocks, block_n, k_steps).
#define CONVT_NHWC_TF32(X)                             \
  X(tf32_256x128x32, kFloat32, kTf32, 1, 2, 128, 4)    \
  X(tf32_256x64x32, kFloat32, kTf32, 1, 2, 64, 4)      \
  X(tf32_256x32x32, kFloat32, kTf32, 1, 2, 32, 4)      \
  X(tf32_128x128x32, kFloat32, kTf32, 1, 1, 128, 4)    \
  X(tf32_128x256x32, kFloat32, kTf32, 1, 1, 256, 4)    \
  X(tf32_pair_128x64x32, kFloat32, kTf32, 2, 1, 64, 4) \
  X(tf32_pair_256x32x16, kFloat32, kTf32, 2, 2, 32, 2)
#define CONVT_NHWC_TF32X3(X)                            \
  X(tf32x3_128x128x32, kFloat32, kTf32x3, 1, 1, 128, 4) \
  X(tf32x3_256x64x32, kFloat32, kTf32x3, 1, 2, 64, 4)   \
  X(tf32x3_128x64x32, kFloat32, kTf32x3, 1, 1, 64, 4)   \
  X(tf32x3_256x32x32, kFloat32, kTf32x3, 1, 2, 32, 4)   \
  X(tf32x3_pair_128x32x32, kFloat32, kTf32x3, 2, 1, 32, 4)
#define CONVT_NHWC_HALF(X, name, dtype)               \
  X(name##_128x256x64, dtype, kHalf, 1, 1, 256, 4)    \
  X(name##_256x128x64, dtype, kHalf, 1, 2, 128, 4)    \
  X(name##_256x64x64, dtype, kHalf, 1, 2, 64, 4)      \
  X(name##_256x32x64, dtype, kHalf, 1, 2, 32, 4)      \
  X(name##_128x128x64, dtype, kHalf, 1, 1, 128, 4)    \
  X(name##_256x64x32, dtype, kHalf, 1, 2, 64, 2)      \
  X(name##_256x32x32, dtype, kHalf, 1, 2, 32, 2)      \
  X(name##_pair_128x64x64, dtype, kHalf, 2, 1, 64, 4) \
  X(name##_pair_256x32x32, dtype, kHalf, 2, 2, 32, 2) \
  X(name##_pair_256x32x16, dtype, kHalf, 2, 2, 32, 1)
#define CONVT_NHWC_INSTANCES(X) \
  CONVT_NHWC_TF32(X) CONVT_NHWC_TF32X3(X) CONVT_NHWC_HALF(X, bf16, kBFloat16) CONVT_NHWC_HALF(X, f16, kFloat16)

inline constexpr NhwcInstance kNhwcInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, ctas, blocks, block_n, k_steps) \
  {"nhwc_" #symbol, DataType::dtype, Precision::precision, ctas, blocks, block_n, k_steps},
    CONVT_NHWC_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumNhwcInstances = count_of(kNhwcInstances);

}  // namespace convt

namespace convt::nhwc_sm90a {

CONVT_NHWC_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::nhwc_sm90a
