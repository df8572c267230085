// Compiled kernels of gathered terms and of small layers. Launches, planning and tests read these lists.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Kernel of gathered terms. A thread accumulates `channels` result channels at `positions` positions.
struct ThinGatherInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t channels;
  int32_t positions;
};

inline constexpr ThinGatherInstance kThinGatherInstances[] = {
    {"thin_ieee_f32_gather_8x8", DataType::kFloat32, Direction::kForward, 8, 8},
    {"thin_ieee_f32_gather_4x4", DataType::kFloat32, Direction::kForward, 4, 4},
    {"thin_ieee_f32_gather_2x2", DataType::kFloat32, Direction::kForward, 2, 2},
    {"thin_grad_input_f32_gather_8x8", DataType::kFloat32, Direction::kGradInput, 8, 8},
    {"thin_grad_input_f32_gather_4x4", DataType::kFloat32, Direction::kGradInput, 4, 4},
    {"thin_grad_input_f32_gather_2x2", DataType::kFloat32, Direction::kGradInput, 2, 2},
};
inline constexpr int32_t kNumThinGatherInstances = count_of(kThinGatherInstances);

// Kernel of small layers: a thread computes a result, or a CTA computes a few taps of the gradient of the weight.
struct ThinDirectInstance {
  const char* name;
  DataType dtype;
  Direction direction;
};

inline constexpr ThinDirectInstance kThinDirectInstances[] = {
    {"thin_ieee_f32_direct", DataType::kFloat32, Direction::kForward},
    {"thin_ieee_f16_direct", DataType::kFloat16, Direction::kForward},
    {"thin_ieee_bf16_direct", DataType::kBFloat16, Direction::kForward},
    {"thin_grad_input_f32_direct", DataType::kFloat32, Direction::kGradInput},
    {"thin_grad_input_f16_direct", DataType::kFloat16, Direction::kGradInput},
    {"thin_grad_input_bf16_direct", DataType::kBFloat16, Direction::kGradInput},
    {"thin_grad_weight_f32_direct", DataType::kFloat32, Direction::kGradWeight},
    {"thin_grad_weight_f16_direct", DataType::kFloat16, Direction::kGradWeight},
    {"thin_grad_weight_bf16_direct", DataType::kBFloat16, Direction::kGradWeight},
};
inline constexpr int32_t kNumThinDirectInstances = count_of(kThinDirectInstances);

}  // namespace convt

namespace convt::gather {

// Kernel of a row of kThinGatherInstances or kThinDirectInstances. Forward and gradient of the input share kernels.
const void* kernel_of(int32_t instance);
const void* direct_kernel_of(int32_t instance);

}  // namespace convt::gather
