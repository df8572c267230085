// The compiled kernels of gathered terms and of streamed sources: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of gathered terms. A thread adds up `channels` result channels at `positions` positions.
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

// A kernel of streamed sources. A thread adds up `channels` result channels at `positions` positions.
struct ThinStreamedInstance {
  const char* name;
  DataType dtype;
  Direction direction;
  int32_t channels;
  int32_t positions;
  int32_t taps;  // 0: the source is read element by element; else four channels at once, of so many taps at most
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

// The kernel of a row of kThinStreamedInstances, and of kThinGatherInstances. Both directions share kernels.
const void* kernel_of(int32_t instance);
const void* gather_kernel_of(int32_t instance);

}  // namespace convt::streamed
