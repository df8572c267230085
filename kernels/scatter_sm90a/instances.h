// Kernel instances of the scatter engine, for dispatch, planning, tests and the files of instances/.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A scatter kernel. It has accumulators for `slots` position rows of `columns` columns each: H phases, channels and
// taps along W.
struct ScatterInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t slots;
  int32_t columns;
  bool channels_last;  // otherwise NCHW
};

// Whether operands are sums of two TF32 numbers.
constexpr bool is_split(const ScatterInstance& instance) { return instance.precision == Precision::kTf32x3; }

// Sorted by size within each dtype, precision and layout.
inline constexpr ScatterInstance kScatterInstances[] = {
    {"scatter_tf32_2x24", DataType::kFloat32, Precision::kTf32, 2, 24, false},
    {"scatter_tf32_3x32", DataType::kFloat32, Precision::kTf32, 3, 32, false},
    {"scatter_bf16_2x24", DataType::kBFloat16, Precision::kHalf, 2, 24, false},
    {"scatter_bf16_3x32", DataType::kBFloat16, Precision::kHalf, 3, 32, false},
    {"scatter_f16_2x24", DataType::kFloat16, Precision::kHalf, 2, 24, false},
    {"scatter_f16_3x32", DataType::kFloat16, Precision::kHalf, 3, 32, false},
    {"scatter_tf32x3_2x24", DataType::kFloat32, Precision::kTf32x3, 2, 24, false},
    {"scatter_tf32x3_2x40", DataType::kFloat32, Precision::kTf32x3, 2, 40, false},
    {"scatter_tf32x3_3x32", DataType::kFloat32, Precision::kTf32x3, 3, 32, false},
    {"scatter_tf32_pixels_2x24", DataType::kFloat32, Precision::kTf32, 2, 24, true},
    {"scatter_tf32_pixels_2x40", DataType::kFloat32, Precision::kTf32, 2, 40, true},
    {"scatter_tf32_pixels_3x32", DataType::kFloat32, Precision::kTf32, 3, 32, true},
    {"scatter_bf16_pixels_2x24", DataType::kBFloat16, Precision::kHalf, 2, 24, true},
    {"scatter_bf16_pixels_2x40", DataType::kBFloat16, Precision::kHalf, 2, 40, true},
    {"scatter_bf16_pixels_3x32", DataType::kBFloat16, Precision::kHalf, 3, 32, true},
    {"scatter_f16_pixels_2x24", DataType::kFloat16, Precision::kHalf, 2, 24, true},
    {"scatter_f16_pixels_2x40", DataType::kFloat16, Precision::kHalf, 2, 40, true},
    {"scatter_f16_pixels_3x32", DataType::kFloat16, Precision::kHalf, 3, 32, true},
    {"scatter_tf32x3_pixels_2x24", DataType::kFloat32, Precision::kTf32x3, 2, 24, true},
    {"scatter_tf32x3_pixels_2x40", DataType::kFloat32, Precision::kTf32x3, 2, 40, true},
    {"scatter_tf32x3_pixels_3x32", DataType::kFloat32, Precision::kTf32x3, 3, 32, true},
};
inline constexpr int32_t kNumScatterInstances = count_of(kScatterInstances);

}  // namespace convt

namespace convt::scatter_sm90a {

// The kernel of a row of kScatterInstances.
const void* kernel_of(int32_t instance);

}  // namespace convt::scatter_sm90a
