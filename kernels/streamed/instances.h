// Compiled kernels of gathered terms and of streamed sources. Launches, planning and tests read these lists.
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

// Kernel of streamed sources. A thread accumulates `channels` result channels at `positions` positions.
struct ThinStreamedInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t channels;
  int32_t positions;
  int32_t taps;  // 0: reads the source element by element; else four channels at once, and the maximum number of taps
};

inline constexpr ThinStreamedInstance kThinStreamedInstances[] = {
    {"thin_ieee_f32_streamed_16x2", DataType::kFloat32, Direction::kForward, 16, 2, 0},
    {"thin_ieee_f32_streamed_8x2", DataType::kFloat32, Direction::kForward, 8, 2, 0},
    {"thin_ieee_f32_streamed_4x1", DataType::kFloat32, Direction::kForward, 4, 1, 0},
    {"thin_ieee_f32_streamed_16x2_taps4", DataType::kFloat32, Direction::kForward, 16, 2, 4},
    {"thin_ieee_f32_streamed_8x2_taps4", DataType::kFloat32, Direction::kForward, 8, 2, 4},
    {"thin_grad_input_f32_streamed_16x2", DataType::kFloat32, Direction::kGradInput, 16, 2, 0},
    {"thin_grad_input_f32_streamed_8x2", DataType::kFloat32, Direction::kGradInput, 8, 2, 0},
    {"thin_grad_input_f32_streamed_4x1", DataType::kFloat32, Direction::kGradInput, 4, 1, 0},
    {"thin_grad_input_f32_streamed_16x2_taps4", DataType::kFloat32, Direction::kGradInput, 16, 2, 4},
    {"thin_grad_input_f32_streamed_8x2_taps4", DataType::kFloat32, Direction::kGradInput, 8, 2, 4},
    {"thin_grad_input_f32_streamed_16x1_taps16", DataType::kFloat32, Direction::kGradInput, 16, 1, 16},
};
inline constexpr int32_t kNumThinStreamedInstances = count_of(kThinStreamedInstances);

}  // namespace convt

namespace convt::streamed {

// Kernel of a row of kThinStreamedInstances or kThinGatherInstances. Both directions share kernels.
const void* kernel_of(int32_t instance);
const void* gather_kernel_of(int32_t instance);

}  // namespace convt::streamed
