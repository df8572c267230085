// Compiled kernels of depthwise layers. Launches, planning and tests read these lists.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Kernel of a depthwise layer, for one square kernel size and one stride.
struct ThinDepthwiseInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t kernel;
  int32_t stride;
};

inline constexpr ThinDepthwiseInstance kThinDepthwiseInstances[] = {
    {"thin_ieee_f32_k4s2", DataType::kFloat32, Direction::kForward, 4, 2},
    {"thin_ieee_f32_k3s2", DataType::kFloat32, Direction::kForward, 3, 2},
    {"thin_ieee_f32_k2s2", DataType::kFloat32, Direction::kForward, 2, 2},
    {"thin_ieee_f16_k4s2", DataType::kFloat16, Direction::kForward, 4, 2},
    {"thin_ieee_f16_k3s2", DataType::kFloat16, Direction::kForward, 3, 2},
    {"thin_ieee_f16_k2s2", DataType::kFloat16, Direction::kForward, 2, 2},
    {"thin_ieee_bf16_k4s2", DataType::kBFloat16, Direction::kForward, 4, 2},
    {"thin_ieee_bf16_k3s2", DataType::kBFloat16, Direction::kForward, 3, 2},
    {"thin_ieee_bf16_k2s2", DataType::kBFloat16, Direction::kForward, 2, 2},
    {"thin_grad_input_f32_k4s2", DataType::kFloat32, Direction::kGradInput, 4, 2},
    {"thin_grad_input_f32_k3s2", DataType::kFloat32, Direction::kGradInput, 3, 2},
    {"thin_grad_input_f32_k2s2", DataType::kFloat32, Direction::kGradInput, 2, 2},
    {"thin_grad_input_f16_k4s2", DataType::kFloat16, Direction::kGradInput, 4, 2},
    {"thin_grad_input_f16_k3s2", DataType::kFloat16, Direction::kGradInput, 3, 2},
    {"thin_grad_input_f16_k2s2", DataType::kFloat16, Direction::kGradInput, 2, 2},
    {"thin_grad_input_bf16_k4s2", DataType::kBFloat16, Direction::kGradInput, 4, 2},
    {"thin_grad_input_bf16_k3s2", DataType::kBFloat16, Direction::kGradInput, 3, 2},
    {"thin_grad_input_bf16_k2s2", DataType::kBFloat16, Direction::kGradInput, 2, 2},
    {"thin_grad_weight_f32_k4s2", DataType::kFloat32, Direction::kGradWeight, 4, 2},
    {"thin_grad_weight_f32_k3s2", DataType::kFloat32, Direction::kGradWeight, 3, 2},
    {"thin_grad_weight_f32_k2s2", DataType::kFloat32, Direction::kGradWeight, 2, 2},
    {"thin_grad_weight_f16_k4s2", DataType::kFloat16, Direction::kGradWeight, 4, 2},
    {"thin_grad_weight_f16_k3s2", DataType::kFloat16, Direction::kGradWeight, 3, 2},
    {"thin_grad_weight_f16_k2s2", DataType::kFloat16, Direction::kGradWeight, 2, 2},
    {"thin_grad_weight_bf16_k4s2", DataType::kBFloat16, Direction::kGradWeight, 4, 2},
    {"thin_grad_weight_bf16_k3s2", DataType::kBFloat16, Direction::kGradWeight, 3, 2},
    {"thin_grad_weight_bf16_k2s2", DataType::kBFloat16, Direction::kGradWeight, 2, 2},
};
inline constexpr int32_t kNumThinDepthwiseInstances = count_of(kThinDepthwiseInstances);

// Kernel of a depthwise layer in channels_last, for one square kernel size and one stride. A thread processes `vector`
// neighbouring channels at `positions` positions. `rows_ahead`: rows of the source or grad_output in flight; the values
// are the fastest without register spills.
struct ThinChannelsLastInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t kernel;
  int32_t stride;
  int32_t vector;
  int32_t positions;
  int32_t rows_ahead;
};

inline constexpr ThinChannelsLastInstance kThinChannelsLastInstances[] = {
    {"thin_ieee_f32_k4s2_channels_last", DataType::kFloat32, Direction::kForward, 4, 2, 4, 2, 1},
    {"thin_ieee_f32_k3s2_channels_last", DataType::kFloat32, Direction::kForward, 3, 2, 4, 2, 1},
    {"thin_ieee_f32_k2s2_channels_last", DataType::kFloat32, Direction::kForward, 2, 2, 4, 2, 1},
    {"thin_ieee_f32_k3s1_channels_last", DataType::kFloat32, Direction::kForward, 3, 1, 4, 2, 2},
    {"thin_grad_input_f32_k4s2_channels_last", DataType::kFloat32, Direction::kGradInput, 4, 2, 4, 2, 2},
    {"thin_grad_input_f32_k3s2_channels_last", DataType::kFloat32, Direction::kGradInput, 3, 2, 4, 2, 2},
    {"thin_grad_input_f32_k2s2_channels_last", DataType::kFloat32, Direction::kGradInput, 2, 2, 4, 2, 2},
    {"thin_grad_input_f32_k3s1_channels_last", DataType::kFloat32, Direction::kGradInput, 3, 1, 4, 2, 2},
    {"thin_grad_weight_f32_k4s2_channels_last", DataType::kFloat32, Direction::kGradWeight, 4, 2, 2, 2, 2},
    {"thin_grad_weight_f32_k3s2_channels_last", DataType::kFloat32, Direction::kGradWeight, 3, 2, 2, 2, 2},
    {"thin_grad_weight_f32_k2s2_channels_last", DataType::kFloat32, Direction::kGradWeight, 2, 2, 2, 2, 2},
    {"thin_grad_weight_f32_k3s1_channels_last", DataType::kFloat32, Direction::kGradWeight, 3, 1, 2, 4, 1},
    {"thin_ieee_f16_k4s2_channels_last", DataType::kFloat16, Direction::kForward, 4, 2, 4, 2, 1},
    {"thin_ieee_f16_k3s2_channels_last", DataType::kFloat16, Direction::kForward, 3, 2, 4, 2, 2},
    {"thin_ieee_f16_k2s2_channels_last", DataType::kFloat16, Direction::kForward, 2, 2, 4, 2, 2},
    {"thin_ieee_f16_k3s1_channels_last", DataType::kFloat16, Direction::kForward, 3, 1, 4, 2, 2},
    {"thin_grad_input_f16_k4s2_channels_last", DataType::kFloat16, Direction::kGradInput, 4, 2, 4, 2, 2},
    {"thin_grad_input_f16_k3s2_channels_last", DataType::kFloat16, Direction::kGradInput, 3, 2, 4, 2, 2},
    {"thin_grad_input_f16_k2s2_channels_last", DataType::kFloat16, Direction::kGradInput, 2, 2, 4, 2, 2},
    {"thin_grad_input_f16_k3s1_channels_last", DataType::kFloat16, Direction::kGradInput, 3, 1, 4, 2, 2},
    {"thin_grad_weight_f16_k4s2_channels_last", DataType::kFloat16, Direction::kGradWeight, 4, 2, 2, 2, 2},
    {"thin_grad_weight_f16_k3s2_channels_last", DataType::kFloat16, Direction::kGradWeight, 3, 2, 2, 2, 2},
    {"thin_grad_weight_f16_k2s2_channels_last", DataType::kFloat16, Direction::kGradWeight, 2, 2, 4, 2, 2},
    {"thin_grad_weight_f16_k3s1_channels_last", DataType::kFloat16, Direction::kGradWeight, 3, 1, 4, 2, 1},
    {"thin_ieee_bf16_k4s2_channels_last", DataType::kBFloat16, Direction::kForward, 4, 2, 4, 2, 1},
    {"thin_ieee_bf16_k3s2_channels_last", DataType::kBFloat16, Direction::kForward, 3, 2, 4, 2, 2},
    {"thin_ieee_bf16_k2s2_channels_last", DataType::kBFloat16, Direction::kForward, 2, 2, 4, 2, 2},
    {"thin_ieee_bf16_k3s1_channels_last", DataType::kBFloat16, Direction::kForward, 3, 1, 4, 2, 2},
    {"thin_grad_input_bf16_k4s2_channels_last", DataType::kBFloat16, Direction::kGradInput, 4, 2, 4, 2, 2},
    {"thin_grad_input_bf16_k3s2_channels_last", DataType::kBFloat16, Direction::kGradInput, 3, 2, 4, 2, 2},
    {"thin_grad_input_bf16_k2s2_channels_last", DataType::kBFloat16, Direction::kGradInput, 2, 2, 4, 2, 2},
    {"thin_grad_input_bf16_k3s1_channels_last", DataType::kBFloat16, Direction::kGradInput, 3, 1, 4, 2, 2},
    {"thin_grad_weight_bf16_k4s2_channels_last", DataType::kBFloat16, Direction::kGradWeight, 4, 2, 2, 2, 2},
    {"thin_grad_weight_bf16_k3s2_channels_last", DataType::kBFloat16, Direction::kGradWeight, 3, 2, 2, 2, 2},
    {"thin_grad_weight_bf16_k2s2_channels_last", DataType::kBFloat16, Direction::kGradWeight, 2, 2, 4, 2, 2},
    {"thin_grad_weight_bf16_k3s1_channels_last", DataType::kBFloat16, Direction::kGradWeight, 3, 1, 4, 2, 1},
};
inline constexpr int32_t kNumThinChannelsLastInstances = count_of(kThinChannelsLastInstances);

}  // namespace convt

namespace convt::depthwise {

// Kernel of a row of kThinDepthwiseInstances or kThinChannelsLastInstances.
const void* kernel_of(int32_t instance);
const void* channels_last_kernel_of(int32_t instance);

}  // namespace convt::depthwise
