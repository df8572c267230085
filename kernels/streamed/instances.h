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

// X(symbol, dtype, direction, channels, positions)
#define CONVT_THIN_GATHER_INSTANCES(X)                     \
  X(ieee_f32_gather_8x8, kFloat32, kForward, 8, 8)         \
  X(ieee_f32_gather_4x4, kFloat32, kForward, 4, 4)         \
  X(ieee_f32_gather_2x2, kFloat32, kForward, 2, 2)         \
  X(grad_input_f32_gather_8x8, kFloat32, kGradInput, 8, 8) \
  X(grad_input_f32_gather_4x4, kFloat32, kGradInput, 4, 4) \
  X(grad_input_f32_gather_2x2, kFloat32, kGradInput, 2, 2)

inline constexpr ThinGatherInstance kThinGatherInstances[] = {
#define CONVT_ROW(symbol, dtype, direction, channels, positions) \
  {"thin_" #symbol, DataType::dtype, Direction::direction, channels, positions},
    CONVT_THIN_GATHER_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
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

// X(symbol, dtype, direction, channels, positions, taps)
#define CONVT_THIN_STREAMED_INSTANCES(X)                                \
  X(ieee_f32_streamed_16x2, kFloat32, kForward, 16, 2, 0)               \
  X(ieee_f32_streamed_8x2, kFloat32, kForward, 8, 2, 0)                 \
  X(ieee_f32_streamed_4x1, kFloat32, kForward, 4, 1, 0)                 \
  X(ieee_f32_streamed_16x2_taps4, kFloat32, kForward, 16, 2, 4)         \
  X(ieee_f32_streamed_8x2_taps4, kFloat32, kForward, 8, 2, 4)           \
  X(grad_input_f32_streamed_16x2, kFloat32, kGradInput, 16, 2, 0)       \
  X(grad_input_f32_streamed_8x2, kFloat32, kGradInput, 8, 2, 0)         \
  X(grad_input_f32_streamed_4x1, kFloat32, kGradInput, 4, 1, 0)         \
  X(grad_input_f32_streamed_16x2_taps4, kFloat32, kGradInput, 16, 2, 4) \
  X(grad_input_f32_streamed_8x2_taps4, kFloat32, kGradInput, 8, 2, 4)   \
  X(grad_input_f32_streamed_16x1_taps16, kFloat32, kGradInput, 16, 1, 16)

inline constexpr ThinStreamedInstance kThinStreamedInstances[] = {
#define CONVT_ROW(symbol, dtype, direction, channels, positions, taps) \
  {"thin_" #symbol, DataType::dtype, Direction::direction, channels, positions, taps},
    CONVT_THIN_STREAMED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinStreamedInstances = count_of(kThinStreamedInstances);

}  // namespace convt

namespace convt::streamed {

CONVT_THIN_GATHER_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_THIN_STREAMED_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::streamed
