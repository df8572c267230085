// All kernels of the flat family, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Names end in <W phases>x<consumer warpgroups>. With two consumers one CTA occupies the SM. With one, two CTAs share
// the SM, and one multiplies while the other stores. "half" kernels have half as many accumulators, for few tiles.
struct FlatInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t phases;
  int32_t consumers;
  int32_t accumulators;  // per warpgroup and channel: positions times W phases
};

inline constexpr FlatInstance kFlatInstances[] = {
    {"flat_tf32_1x2", DataType::kFloat32, Precision::kTf32, 1, 2, 256},
    {"flat_tf32_1xhalf", DataType::kFloat32, Precision::kTf32, 1, 1, 128},
    {"flat_tf32_2x1", DataType::kFloat32, Precision::kTf32, 2, 1, 256},
    {"flat_tf32_2x2", DataType::kFloat32, Precision::kTf32, 2, 2, 256},
    {"flat_tf32_2xhalf", DataType::kFloat32, Precision::kTf32, 2, 1, 128},
    {"flat_tf32_4x2", DataType::kFloat32, Precision::kTf32, 4, 2, 256},
    {"flat_tf32_4xhalf", DataType::kFloat32, Precision::kTf32, 4, 1, 128},
    {"flat_bf16_1x2", DataType::kBFloat16, Precision::kHalf, 1, 2, 256},
    {"flat_bf16_1xhalf", DataType::kBFloat16, Precision::kHalf, 1, 1, 128},
    {"flat_bf16_2x1", DataType::kBFloat16, Precision::kHalf, 2, 1, 256},
    {"flat_bf16_2x2", DataType::kBFloat16, Precision::kHalf, 2, 2, 256},
    {"flat_bf16_2xhalf", DataType::kBFloat16, Precision::kHalf, 2, 1, 128},
    {"flat_bf16_4x2", DataType::kBFloat16, Precision::kHalf, 4, 2, 256},
    {"flat_bf16_4xhalf", DataType::kBFloat16, Precision::kHalf, 4, 1, 128},
    {"flat_f16_1x2", DataType::kFloat16, Precision::kHalf, 1, 2, 256},
    {"flat_f16_1xhalf", DataType::kFloat16, Precision::kHalf, 1, 1, 128},
    {"flat_f16_2x1", DataType::kFloat16, Precision::kHalf, 2, 1, 256},
    {"flat_f16_2x2", DataType::kFloat16, Precision::kHalf, 2, 2, 256},
    {"flat_f16_2xhalf", DataType::kFloat16, Precision::kHalf, 2, 1, 128},
    {"flat_f16_4x2", DataType::kFloat16, Precision::kHalf, 4, 2, 256},
    {"flat_f16_4xhalf", DataType::kFloat16, Precision::kHalf, 4, 1, 128},
};
inline constexpr int32_t kNumFlatInstances = count_of(kFlatInstances);

}  // namespace convt

namespace convt::flat_sm90a {

// The kernel of a row of kFlatInstances.
const void* kernel_of(int32_t instance);

// The kernel that packs both operands.
const void* pack_operands(DataType dtype);

}  // namespace convt::flat_sm90a
