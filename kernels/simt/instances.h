// The kernel instances that exist: the one list that dispatch (launch/), planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// One compiled kernel. A thread computes thread_co output channels of `quads` runs of four
// neighbouring positions.
struct Instance {
  const char* name;
  DataType dtype;
  Precision precision;  // the order of its sums: kIeee or kAten
  Direction direction;  // kForward or kGradInput
  int32_t thread_co;
  int32_t quads;
};

// X(symbol, dtype, precision, direction, thread_co, quads)
#define CONVT_SIMT_INSTANCES(X)                              \
  X(ieee_f32_8x8, kFloat32, kIeee, kForward, 8, 2)           \
  X(ieee_f32_8x4, kFloat32, kIeee, kForward, 8, 1)           \
  X(ieee_f32_2x8, kFloat32, kIeee, kForward, 2, 2)           \
  X(aten_f32_8x4, kFloat32, kAten, kForward, 8, 1)           \
  X(aten_f32_2x8, kFloat32, kAten, kForward, 2, 2)           \
  X(ieee_f64_8x4, kFloat64, kIeee, kForward, 8, 1)           \
  X(ieee_f64_2x8, kFloat64, kIeee, kForward, 2, 2)           \
  X(ieee_f16_8x4, kFloat16, kIeee, kForward, 8, 1)           \
  X(ieee_f16_2x8, kFloat16, kIeee, kForward, 2, 2)           \
  X(ieee_bf16_8x4, kBFloat16, kIeee, kForward, 8, 1)         \
  X(ieee_bf16_2x8, kBFloat16, kIeee, kForward, 2, 2)         \
  X(grad_input_f32_8x8, kFloat32, kIeee, kGradInput, 8, 2)   \
  X(grad_input_f32_8x4, kFloat32, kIeee, kGradInput, 8, 1)   \
  X(grad_input_f32_2x8, kFloat32, kIeee, kGradInput, 2, 2)   \
  X(grad_input_f64_8x4, kFloat64, kIeee, kGradInput, 8, 1)   \
  X(grad_input_f64_2x8, kFloat64, kIeee, kGradInput, 2, 2)   \
  X(grad_input_f16_8x4, kFloat16, kIeee, kGradInput, 8, 1)   \
  X(grad_input_f16_2x8, kFloat16, kIeee, kGradInput, 2, 2)   \
  X(grad_input_bf16_8x4, kBFloat16, kIeee, kGradInput, 8, 1) \
  X(grad_input_bf16_2x8, kBFloat16, kIeee, kGradInput, 2, 2)

inline constexpr Instance kInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, direction, thread_co, quads) \
  {"simt_" #symbol, DataType::dtype, Precision::precision, Direction::direction, thread_co, quads},
    CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumInstances = count_of(kInstances);

// Position in kInstances of the row that CONVT_SIMT_INSTANCES calls `symbol`.
enum InstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_##symbol,
  CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// A kernel of the gradient of the weight. A thread adds up thread_ci x thread_co channels x thread_kw neighbouring
// taps.
struct GradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t thread_ci;
  int32_t thread_co;
  int32_t thread_kw;
};

// X(symbol, dtype, thread_ci, thread_co, thread_kw)
#define CONVT_GRAD_WEIGHT_INSTANCES(X)          \
  X(grad_weight_f32_8x4x3, kFloat32, 8, 4, 3)   \
  X(grad_weight_f32_8x4x4, kFloat32, 8, 4, 4)   \
  X(grad_weight_f32_8x4x2, kFloat32, 8, 4, 2)   \
  X(grad_weight_f32_8x2x5, kFloat32, 8, 2, 5)   \
  X(grad_weight_f32_8x2x7, kFloat32, 8, 2, 7)   \
  X(grad_weight_f32_2x2x4, kFloat32, 2, 2, 4)   \
  X(grad_weight_f64_4x2x3, kFloat64, 4, 2, 3)   \
  X(grad_weight_f64_2x2x4, kFloat64, 2, 2, 4)   \
  X(grad_weight_f16_8x4x3, kFloat16, 8, 4, 3)   \
  X(grad_weight_f16_2x2x4, kFloat16, 2, 2, 4)   \
  X(grad_weight_bf16_8x4x3, kBFloat16, 8, 4, 3) \
  X(grad_weight_bf16_2x2x4, kBFloat16, 2, 2, 4)

inline constexpr GradWeightInstance kGradWeightInstances[] = {
#define CONVT_ROW(symbol, dtype, thread_ci, thread_co, thread_kw) \
  {"simt_" #symbol, DataType::dtype, thread_ci, thread_co, thread_kw},
    CONVT_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumGradWeightInstances = count_of(kGradWeightInstances);

// Position in kGradWeightInstances.
enum GradWeightInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_##symbol,
  CONVT_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt

namespace convt::simt {

CONVT_SIMT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_GRAD_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::simt
