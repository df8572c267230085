// Compiled kernels of the thin engine. Launches, planning and tests read these lists.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A thread accumulates `outputs` virtual outputs (a channel in one phase each) at `positions` positions, in the order
// of class ieee.
struct ThinInstance {
  const char* name;
  DataType dtype;
  int32_t outputs;
  int32_t positions;
};

inline constexpr ThinInstance kThinInstances[] = {
    // float32
    {"thin_ieee_f32_4x16", DataType::kFloat32, 4, 16},
    {"thin_ieee_f32_8x8", DataType::kFloat32, 8, 8},
    {"thin_ieee_f32_12x4", DataType::kFloat32, 12, 4},
    {"thin_ieee_f32_16x4", DataType::kFloat32, 16, 4},
    // float16
    {"thin_ieee_f16_4x16", DataType::kFloat16, 4, 16},
    {"thin_ieee_f16_8x8", DataType::kFloat16, 8, 8},
    {"thin_ieee_f16_12x4", DataType::kFloat16, 12, 4},
    {"thin_ieee_f16_16x4", DataType::kFloat16, 16, 4},
    // bfloat16
    {"thin_ieee_bf16_4x16", DataType::kBFloat16, 4, 16},
    {"thin_ieee_bf16_8x8", DataType::kBFloat16, 8, 8},
    {"thin_ieee_bf16_12x4", DataType::kBFloat16, 12, 4},
    {"thin_ieee_bf16_16x4", DataType::kBFloat16, 16, 4},
};
inline constexpr int32_t kNumThinInstances = count_of(kThinInstances);

// Kernel of the gradient of the input. A thread accumulates `channels` result channels at `positions` positions.
struct ThinGradInputInstance {
  const char* name;
  DataType dtype;
  int32_t channels;
  int32_t positions;
};

inline constexpr ThinGradInputInstance kThinGradInputInstances[] = {
    // float32
    {"thin_grad_input_f32_8x8", DataType::kFloat32, 8, 8},
    {"thin_grad_input_f32_4x8", DataType::kFloat32, 4, 8},
    {"thin_grad_input_f32_1x16", DataType::kFloat32, 1, 16},
    // float16
    {"thin_grad_input_f16_8x8", DataType::kFloat16, 8, 8},
    {"thin_grad_input_f16_4x8", DataType::kFloat16, 4, 8},
    {"thin_grad_input_f16_1x16", DataType::kFloat16, 1, 16},
    // bfloat16
    {"thin_grad_input_bf16_8x8", DataType::kBFloat16, 8, 8},
    {"thin_grad_input_bf16_4x8", DataType::kBFloat16, 4, 8},
    {"thin_grad_input_bf16_1x16", DataType::kBFloat16, 1, 16},
};
inline constexpr int32_t kNumThinGradInputInstances = count_of(kThinGradInputInstances);

// Kernel of the gradient of the weight. A thread accumulates thread_ci x thread_co channels x thread_kw neighbouring
// taps.
struct ThinGradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t thread_ci;
  int32_t thread_co;
  int32_t thread_kw;
};

inline constexpr ThinGradWeightInstance kThinGradWeightInstances[] = {
    {"thin_grad_weight_f32_8x4x3", DataType::kFloat32, 8, 4, 3},
    {"thin_grad_weight_f32_8x3x4", DataType::kFloat32, 8, 3, 4},
    {"thin_grad_weight_f32_8x2x5", DataType::kFloat32, 8, 2, 5},
    {"thin_grad_weight_f32_8x1x9", DataType::kFloat32, 8, 1, 9},
    {"thin_grad_weight_f16_8x4x3", DataType::kFloat16, 8, 4, 3},
    {"thin_grad_weight_f16_8x3x4", DataType::kFloat16, 8, 3, 4},
    {"thin_grad_weight_f16_8x2x5", DataType::kFloat16, 8, 2, 5},
    {"thin_grad_weight_f16_8x1x9", DataType::kFloat16, 8, 1, 9},
    {"thin_grad_weight_bf16_8x4x3", DataType::kBFloat16, 8, 4, 3},
    {"thin_grad_weight_bf16_8x3x4", DataType::kBFloat16, 8, 3, 4},
    {"thin_grad_weight_bf16_8x2x5", DataType::kBFloat16, 8, 2, 5},
    {"thin_grad_weight_bf16_8x1x9", DataType::kBFloat16, 8, 1, 9},
};
inline constexpr int32_t kNumThinGradWeightInstances = count_of(kThinGradWeightInstances);

// Kernel of the gradient of the weight in channels_last by outer products. A thread accumulates 8 input channels x 8
// neighbouring columns of the weight's rows, and reads `width` columns at a time.
struct ThinOuterWeightInstance {
  const char* name;
  DataType dtype;
  int32_t width;
};

inline constexpr ThinOuterWeightInstance kThinOuterWeightInstances[] = {
    {"thin_grad_weight_f32_outer_8x4x2", DataType::kFloat32, 4},
    {"thin_grad_weight_f32_outer_8x2x4", DataType::kFloat32, 2},
    {"thin_grad_weight_f32_outer_8x1x8", DataType::kFloat32, 1},
};
inline constexpr int32_t kNumThinOuterWeightInstances = count_of(kThinOuterWeightInstances);

}  // namespace convt

namespace convt::thin {

// Kernel of a row of kThinInstances, and of a row of each gradient's list.
const void* kernel_of(int32_t instance);
const void* grad_input_kernel_of(int32_t instance);
const void* grad_weight_kernel_of(int32_t instance);
const void* outer_weight_kernel_of(int32_t instance);

}  // namespace convt::thin
