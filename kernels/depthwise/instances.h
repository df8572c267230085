// The compiled kernels of depthwise layers: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of a depthwise layer, of a square kernel and one stride.
struct ThinDepthwiseInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t kernel;
  int32_t stride;
};

// X(symbol, dtype, direction, kernel, stride)
#define CONVT_THIN_DEPTHWISE_INSTANCES(X)                \
  X(ieee_f32_k4s2, kFloat32, kForward, 4, 2)             \
  X(ieee_f32_k3s2, kFloat32, kForward, 3, 2)             \
  X(ieee_f32_k2s2, kFloat32, kForward, 2, 2)             \
  X(ieee_f16_k4s2, kFloat16, kForward, 4, 2)             \
  X(ieee_f16_k3s2, kFloat16, kForward, 3, 2)             \
  X(ieee_f16_k2s2, kFloat16, kForward, 2, 2)             \
  X(ieee_bf16_k4s2, kBFloat16, kForward, 4, 2)           \
  X(ieee_bf16_k3s2, kBFloat16, kForward, 3, 2)           \
  X(ieee_bf16_k2s2, kBFloat16, kForward, 2, 2)           \
  X(grad_input_f32_k4s2, kFloat32, kGradInput, 4, 2)     \
  X(grad_input_f32_k3s2, kFloat32, kGradInput, 3, 2)     \
  X(grad_input_f32_k2s2, kFloat32, kGradInput, 2, 2)     \
  X(grad_input_f16_k4s2, kFloat16, kGradInput, 4, 2)     \
  X(grad_input_f16_k3s2, kFloat16, kGradInput, 3, 2)     \
  X(grad_input_f16_k2s2, kFloat16, kGradInput, 2, 2)     \
  X(grad_input_bf16_k4s2, kBFloat16, kGradInput, 4, 2)   \
  X(grad_input_bf16_k3s2, kBFloat16, kGradInput, 3, 2)   \
  X(grad_input_bf16_k2s2, kBFloat16, kGradInput, 2, 2)   \
  X(grad_weight_f32_k4s2, kFloat32, kGradWeight, 4, 2)   \
  X(grad_weight_f32_k3s2, kFloat32, kGradWeight, 3, 2)   \
  X(grad_weight_f32_k2s2, kFloat32, kGradWeight, 2, 2)   \
  X(grad_weight_f16_k4s2, kFloat16, kGradWeight, 4, 2)   \
  X(grad_weight_f16_k3s2, kFloat16, kGradWeight, 3, 2)   \
  X(grad_weight_f16_k2s2, kFloat16, kGradWeight, 2, 2)   \
  X(grad_weight_bf16_k4s2, kBFloat16, kGradWeight, 4, 2) \
  X(grad_weight_bf16_k3s2, kBFloat16, kGradWeight, 3, 2) \
  X(grad_weight_bf16_k2s2, kBFloat16, kGradWeight, 2, 2)

inline constexpr ThinDepthwiseInstance kThinDepthwiseInstances[] = {
#define CONVT_ROW(symbol, dtype, direction, kernel, stride) \
  {"thin_" #symbol, DataType::dtype, Direction::direction, kernel, stride},
    CONVT_THIN_DEPTHWISE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinDepthwiseInstances = count_of(kThinDepthwiseInstances);

// A kernel of a depthwise layer in channels_last, of a square kernel and one stride. A thread has `vector` neighbouring
// channels at `positions` positions. `rows_ahead`: rows of the source, or of grad_output, on their way, as many as were
// fastest without spilled registers.
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

// X(symbol, dtype, direction, kernel, stride, vector, positions, rows_ahead)
#define CONVT_THIN_CHANNELS_LAST_INSTANCES(X)                                   \
  X(ieee_f32_k4s2_channels_last, kFloat32, kForward, 4, 2, 4, 2, 1)             \
  X(ieee_f32_k3s2_channels_last, kFloat32, kForward, 3, 2, 4, 2, 1)             \
  X(ieee_f32_k2s2_channels_last, kFloat32, kForward, 2, 2, 4, 2, 1)             \
  X(ieee_f32_k3s1_channels_last, kFloat32, kForward, 3, 1, 4, 2, 2)             \
  X(grad_input_f32_k4s2_channels_last, kFloat32, kGradInput, 4, 2, 4, 2, 2)     \
  X(grad_input_f32_k3s2_channels_last, kFloat32, kGradInput, 3, 2, 4, 2, 2)     \
  X(grad_input_f32_k2s2_channels_last, kFloat32, kGradInput, 2, 2, 4, 2, 2)     \
  X(grad_input_f32_k3s1_channels_last, kFloat32, kGradInput, 3, 1, 4, 2, 2)     \
  X(grad_weight_f32_k4s2_channels_last, kFloat32, kGradWeight, 4, 2, 2, 2, 2)   \
  X(grad_weight_f32_k3s2_channels_last, kFloat32, kGradWeight, 3, 2, 2, 2, 2)   \
  X(grad_weight_f32_k2s2_channels_last, kFloat32, kGradWeight, 2, 2, 2, 2, 2)   \
  X(grad_weight_f32_k3s1_channels_last, kFloat32, kGradWeight, 3, 1, 2, 4, 1)   \
  X(ieee_f16_k4s2_channels_last, kFloat16, kForward, 4, 2, 4, 2, 1)             \
  X(ieee_f16_k3s2_channels_last, kFloat16, kForward, 3, 2, 4, 2, 2)             \
  X(ieee_f16_k2s2_channels_last, kFloat16, kForward, 2, 2, 4, 2, 2)             \
  X(ieee_f16_k3s1_channels_last, kFloat16, kForward, 3, 1, 4, 2, 2)             \
  X(grad_input_f16_k4s2_channels_last, kFloat16, kGradInput, 4, 2, 4, 2, 2)     \
  X(grad_input_f16_k3s2_channels_last, kFloat16, kGradInput, 3, 2, 4, 2, 2)     \
  X(grad_input_f16_k2s2_channels_last, kFloat16, kGradInput, 2, 2, 4, 2, 2)     \
  X(grad_input_f16_k3s1_channels_last, kFloat16, kGradInput, 3, 1, 4, 2, 2)     \
  X(grad_weight_f16_k4s2_channels_last, kFloat16, kGradWeight, 4, 2, 2, 2, 2)   \
  X(grad_weight_f16_k3s2_channels_last, kFloat16, kGradWeight, 3, 2, 2, 2, 2)   \
  X(grad_weight_f16_k2s2_channels_last, kFloat16, kGradWeight, 2, 2, 4, 2, 2)   \
  X(grad_weight_f16_k3s1_channels_last, kFloat16, kGradWeight, 3, 1, 4, 2, 1)   \
  X(ieee_bf16_k4s2_channels_last, kBFloat16, kForward, 4, 2, 4, 2, 1)           \
  X(ieee_bf16_k3s2_channels_last, kBFloat16, kForward, 3, 2, 4, 2, 2)           \
  X(ieee_bf16_k2s2_channels_last, kBFloat16, kForward, 2, 2, 4, 2, 2)           \
  X(ieee_bf16_k3s1_channels_last, kBFloat16, kForward, 3, 1, 4, 2, 2)           \
  X(grad_input_bf16_k4s2_channels_last, kBFloat16, kGradInput, 4, 2, 4, 2, 2)   \
  X(grad_input_bf16_k3s2_channels_last, kBFloat16, kGradInput, 3, 2, 4, 2, 2)   \
  X(grad_input_bf16_k2s2_channels_last, kBFloat16, kGradInput, 2, 2, 4, 2, 2)   \
  X(grad_input_bf16_k3s1_channels_last, kBFloat16, kGradInput, 3, 1, 4, 2, 2)   \
  X(grad_weight_bf16_k4s2_channels_last, kBFloat16, kGradWeight, 4, 2, 2, 2, 2) \
  X(grad_weight_bf16_k3s2_channels_last, kBFloat16, kGradWeight, 3, 2, 2, 2, 2) \
  X(grad_weight_bf16_k2s2_channels_last, kBFloat16, kGradWeight, 2, 2, 4, 2, 2) \
  X(grad_weight_bf16_k3s1_channels_last, kBFloat16, kGradWeight, 3, 1, 4, 2, 1)

inline constexpr ThinChannelsLastInstance kThinChannelsLastInstances[] = {
#define CONVT_ROW(symbol, dtype, direction, kernel, stride, vector, positions, rows_ahead) \
  {"thin_" #symbol, DataType::dtype, Direction::direction, kernel, stride, vector, positions, rows_ahead},
    CONVT_THIN_CHANNELS_LAST_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinChannelsLastInstances = count_of(kThinChannelsLastInstances);

}  // namespace convt

namespace convt::depthwise {

CONVT_THIN_DEPTHWISE_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_THIN_CHANNELS_LAST_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::depthwise
