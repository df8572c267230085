// Compiled kernels of small layers. Launches, planning and tests read this list.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

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

namespace convt::direct {

// Kernel of a row of kThinDirectInstances.
const void* kernel_of(int32_t instance);

}  // namespace convt::direct
