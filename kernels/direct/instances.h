// The compiled kernels of small layers: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of small layers: a thread computes a result, or a CTA a few taps of the gradient of the weight.
struct ThinDirectInstance {
  const char* name;
  DataType dtype;
  Direction direction;
};

// X(symbol, dtype, direction)
#define CONVT_THIN_DIRECT_INSTANCES(X)             \
  X(ieee_f32_direct, kFloat32, kForward)           \
  X(ieee_f16_direct, kFloat16, kForward)           \
  X(ieee_bf16_direct, kBFloat16, kForward)         \
  X(grad_input_f32_direct, kFloat32, kGradInput)   \
  X(grad_input_f16_direct, kFloat16, kGradInput)   \
  X(grad_input_bf16_direct, kBFloat16, kGradInput) \
  X(grad_weight_f32_direct, kFloat32, kGradWeight) \
  X(grad_weight_f16_direct, kFloat16, kGradWeight) \
  X(grad_weight_bf16_direct, kBFloat16, kGradWeight)

inline constexpr ThinDirectInstance kThinDirectInstances[] = {
#define CONVT_ROW(symbol, dtype, direction) {"thin_" #symbol, DataType::dtype, Direction::direction},
    CONVT_THIN_DIRECT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinDirectInstances = count_of(kThinDirectInstances);

}  // namespace convt

namespace convt::direct {

CONVT_THIN_DIRECT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::direct
