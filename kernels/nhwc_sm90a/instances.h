// All kernels of the nhwc family, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

struct NhwcInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t ctas;     // CTAs per SM: one stores while the other multiplies
  int32_t blocks;   // blocks of 64 positions per consumer warpgroup
  int32_t block_n;  // result channels per tile
  int32_t k_steps;  // steps of K per stage
};

inline constexpr NhwcInstance kNhwcInstances[] = {
    {"nhwc_tf32_256x128x32", DataType::kFloat32, Precision::kTf32, 1, 2, 128, 4},
    {"nhwc_tf32_256x64x32", DataType::kFloat32, Precision::kTf32, 1, 2, 64, 4},
    {"nhwc_tf32_256x32x32", DataType::kFloat32, Precision::kTf32, 1, 2, 32, 4},
    {"nhwc_tf32_128x128x32", DataType::kFloat32, Precision::kTf32, 1, 1, 128, 4},
    {"nhwc_tf32_128x256x32", DataType::kFloat32, Precision::kTf32, 1, 1, 256, 4},
    {"nhwc_tf32_pair_128x64x32", DataType::kFloat32, Precision::kTf32, 2, 1, 64, 4},
    {"nhwc_tf32_pair_256x32x16", DataType::kFloat32, Precision::kTf32, 2, 2, 32, 2},
    {"nhwc_tf32x3_128x128x32", DataType::kFloat32, Precision::kTf32x3, 1, 1, 128, 4},
    {"nhwc_tf32x3_256x64x32", DataType::kFloat32, Precision::kTf32x3, 1, 2, 64, 4},
    {"nhwc_tf32x3_128x64x32", DataType::kFloat32, Precision::kTf32x3, 1, 1, 64, 4},
    {"nhwc_tf32x3_256x32x32", DataType::kFloat32, Precision::kTf32x3, 1, 2, 32, 4},
    {"nhwc_tf32x3_pair_128x32x32", DataType::kFloat32, Precision::kTf32x3, 2, 1, 32, 4},
    {"nhwc_bf16_128x256x64", DataType::kBFloat16, Precision::kHalf, 1, 1, 256, 4},
    {"nhwc_bf16_256x128x64", DataType::kBFloat16, Precision::kHalf, 1, 2, 128, 4},
    {"nhwc_bf16_256x64x64", DataType::kBFloat16, Precision::kHalf, 1, 2, 64, 4},
    {"nhwc_bf16_256x32x64", DataType::kBFloat16, Precision::kHalf, 1, 2, 32, 4},
    {"nhwc_bf16_128x128x64", DataType::kBFloat16, Precision::kHalf, 1, 1, 128, 4},
    {"nhwc_bf16_256x64x32", DataType::kBFloat16, Precision::kHalf, 1, 2, 64, 2},
    {"nhwc_bf16_256x32x32", DataType::kBFloat16, Precision::kHalf, 1, 2, 32, 2},
    {"nhwc_bf16_pair_128x64x64", DataType::kBFloat16, Precision::kHalf, 2, 1, 64, 4},
    {"nhwc_bf16_pair_256x32x32", DataType::kBFloat16, Precision::kHalf, 2, 2, 32, 2},
    {"nhwc_bf16_pair_256x32x16", DataType::kBFloat16, Precision::kHalf, 2, 2, 32, 1},
    {"nhwc_f16_128x256x64", DataType::kFloat16, Precision::kHalf, 1, 1, 256, 4},
    {"nhwc_f16_256x128x64", DataType::kFloat16, Precision::kHalf, 1, 2, 128, 4},
    {"nhwc_f16_256x64x64", DataType::kFloat16, Precision::kHalf, 1, 2, 64, 4},
    {"nhwc_f16_256x32x64", DataType::kFloat16, Precision::kHalf, 1, 2, 32, 4},
    {"nhwc_f16_128x128x64", DataType::kFloat16, Precision::kHalf, 1, 1, 128, 4},
    {"nhwc_f16_256x64x32", DataType::kFloat16, Precision::kHalf, 1, 2, 64, 2},
    {"nhwc_f16_256x32x32", DataType::kFloat16, Precision::kHalf, 1, 2, 32, 2},
    {"nhwc_f16_pair_128x64x64", DataType::kFloat16, Precision::kHalf, 2, 1, 64, 4},
    {"nhwc_f16_pair_256x32x32", DataType::kFloat16, Precision::kHalf, 2, 2, 32, 2},
    {"nhwc_f16_pair_256x32x16", DataType::kFloat16, Precision::kHalf, 2, 2, 32, 1},
};
inline constexpr int32_t kNumNhwcInstances = count_of(kNhwcInstances);

}  // namespace convt

namespace convt::nhwc_sm90a {

// The kernel of a row of kNhwcInstances.
const void* kernel_of(int32_t instance);

}  // namespace convt::nhwc_sm90a
