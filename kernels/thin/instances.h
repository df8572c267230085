// The compiled kernels of thin layers by tiles: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A thread adds up `outputs` virtual outputs (a channel in one phase each) at `positions` positions, in the order of
// class ieee.
struct ThinInstance {
  const char* name;
  DataType dtype;
  int32_t outputs;
  int32_t positions;
};

// X(symbol, dtype, outputs, positions)
#define CONVT_THIN_INSTANCES(X)       \
  X(ieee_f32_4x16, kFloat32, 4, 16)   \
  X(ieee_f32_8x8, kFloat32, 8, 8)     \
  X(ieee_f32_12x4, kFloat32, 12, 4)   \
  X(ieee_f32_16x4, kFloat32, 16, 4)   \
  X(ieee_f16_4x16, kFloat16, 4, 16)   \
  X(ieee_f16_8x8, kFloat16, 8, 8)     \
  X(ieee_f16_12x4, kFloat16, 12, 4)   \
  X(ieee_f16_16x4, kFloat16, 16, 4)   \
  X(ieee_bf16_4x16, kBFloat16, 4, 16) \
  X(ieee_bf16_8x8, kBFloat16, 8, 8)   \
  X(ieee_bf16_12x4, kBFloat16, 12, 4) \
  X(ieee_bf16_16x4, kBFloat16, 16, 4)

inline constexpr ThinInstance kThinInstances[] = {
#define CONVT_ROW(symbol, dtype, outputs, positions) {"thin_" #symbol, DataType::dtype, outputs, positions},
    CONVT_THIN_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinInstances = count_of(kThinInstances);

// A kernel of the gradient of the input. A thread adds up `channels` channels of the result at `positions` positions.
struct ThinGradInputInstance {
  const char* name;
  DataType dtype;
  int32_t channels;
  int32_t positions;
};

// X(symbol, dtype, channels, positions)
#define CONVT_THIN_GRAD_INPUT_INSTANCES(X) \
  X(grad_input_f32_8x8, kFloat32, 8, 8)    \
  X(grad_input_f32_4x8, kFloat32, 4, 8)    \
  X(grad_input_f32_1x16, kFloat32, 1, 16)  \
  X(grad_input_f16_8x8, kFloat16, 8, 8)    \
  X(grad_input_f16_4x8, kFloat16, 4, 8)    \
  X(grad_input_f16_1x16, kFloat16, 1, 16)  \
  X(grad_input_bf16_8x8, kBFloat16, 8, 8)  \
  X(grad_input_bf16_4x8, kBFloat16, 4, 8)  \
  X(grad_input_bf16_1x16, kBFloat16, 1, 16)

inline constexpr ThinGradInputInstance kThinGradInputInstances[] = {
#define CONVT_ROW(symbol, dtype, channels, positions) {"thin_" #symbol, DataType::dtype, channels, positions},
    CONVT_THIN_GRAD_INPUT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinGradInputInstances = count_of(kThinGradInputInstances);

// A kernel of the gradient of the weight. A thread adds up thread_ci x thread_co channels x thread_kw neighbouring
// taps.
struct ThinGradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t thread_ci;
  int32_t thread_co;
  int32_t thread_kw;
};

// X(symbol, dtype, thread_ci, thread_co, thread_kw)
#define CONVT_THIN_GRAD_WEIGHT_INSTANCES(X)     \
  X(grad_weight_f32_8x4x3, kFloat32, 8, 4, 3)   \
  X(grad_weight_f32_8x3x4, kFloat32, 8, 3, 4)   \
  X(grad_weight_f32_8x2x5, kFloat32, 8, 2, 5)   \
  X(grad_weight_f32_8x1x9, kFloat32, 8, 1, 9)   \
  X(grad_weight_f16_8x4x3, kFloat16, 8, 4, 3)   \
  X(grad_weight_f16_8x3x4, kFloat16, 8, 3, 4)   \
  X(grad_weight_f16_8x2x5, kFloat16, 8, 2, 5)   \
  X(grad_weight_f16_8x1x9, kFloat16, 8, 1, 9)   \
  X(grad_weight_bf16_8x4x3, kBFloat16, 8, 4, 3) \
  X(grad_weight_bf16_8x3x4, kBFloat16, 8, 3, 4) \
  X(grad_weight_bf16_8x2x5, kBFloat16, 8, 2, 5) \
  X(grad_weight_bf16_8x1x9, kBFloat16, 8, 1, 9)

inline constexpr ThinGradWeightInstance kThinGradWeightInstances[] = {
#define CONVT_ROW(symbol, dtype, thread_ci, thread_co, thread_kw) \
  {"thin_" #symbol, DataType::dtype, thread_ci, thread_co, thread_kw},
    CONVT_THIN_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinGradWeightInstances = count_of(kThinGradWeightInstances);

// A kernel of the gradient of the weight in channels_last by outer products. A thread adds up 8 input channels x 8
// neighbouring columns of the weight's rows, read as `width` at a time.
struct ThinOuterWeightInstance {
  const char* name;
  DataType dtype;
  int32_t width;
};

// X(symbol, dtype, width)
#define CONVT_THIN_OUTER_WEIGHT_INSTANCES(X)  \
  X(grad_weight_f32_outer_8x4x2, kFloat32, 4) \
  X(grad_weight_f32_outer_8x2x4, kFloat32, 2) \
  X(grad_weight_f32_outer_8x1x8, kFloat32, 1)

inline constexpr ThinOuterWeightInstance kThinOuterWeightInstances[] = {
#define CONVT_ROW(symbol, dtype, width) {"thin_" #symbol, DataType::dtype, width},
    CONVT_THIN_OUTER_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinOuterWeightInstances = count_of(kThinOuterWeightInstances);

}  // namespace convt

namespace convt::thin {

CONVT_THIN_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_THIN_GRAD_INPUT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_THIN_GRAD_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_THIN_OUTER_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::thin
