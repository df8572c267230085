// The compiled kernels of the exact-order engine: the one list that launches, planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of the forward pass or of the gradient of the input. A thread computes thread_co output channels of `quads`
// runs of four neighbouring positions.
struct Instance {
  const char* name;
  DataType dtype;
  Precision precision;  // the order of its sums: kIeee or kAten
  Direction direction;  // kForward or kGradInput
  int32_t thread_co;
  int32_t quads;
};

// Rows of thread_co 8 and of thread_co 2 are compiled in different files: kernels of one shape differ little from dtype
// to dtype, and what a file compiles is compressed together.
// CO8(symbol, dtype, precision, direction, thread_co, quads), and CO2.
#define CONVT_SIMT_ROWS(CO8, CO2)                              \
  CO8(ieee_f32_8x8, kFloat32, kIeee, kForward, 8, 2)           \
  CO8(ieee_f32_8x4, kFloat32, kIeee, kForward, 8, 1)           \
  CO2(ieee_f32_2x8, kFloat32, kIeee, kForward, 2, 2)           \
  CO8(aten_f32_8x4, kFloat32, kAten, kForward, 8, 1)           \
  CO2(aten_f32_2x8, kFloat32, kAten, kForward, 2, 2)           \
  CO8(ieee_f64_8x4, kFloat64, kIeee, kForward, 8, 1)           \
  CO2(ieee_f64_2x8, kFloat64, kIeee, kForward, 2, 2)           \
  CO8(ieee_f16_8x4, kFloat16, kIeee, kForward, 8, 1)           \
  CO2(ieee_f16_2x8, kFloat16, kIeee, kForward, 2, 2)           \
  CO8(ieee_bf16_8x4, kBFloat16, kIeee, kForward, 8, 1)         \
  CO2(ieee_bf16_2x8, kBFloat16, kIeee, kForward, 2, 2)         \
  CO8(grad_input_f32_8x8, kFloat32, kIeee, kGradInput, 8, 2)   \
  CO8(grad_input_f32_8x4, kFloat32, kIeee, kGradInput, 8, 1)   \
  CO2(grad_input_f32_2x8, kFloat32, kIeee, kGradInput, 2, 2)   \
  CO8(grad_input_f64_8x4, kFloat64, kIeee, kGradInput, 8, 1)   \
  CO2(grad_input_f64_2x8, kFloat64, kIeee, kGradInput, 2, 2)   \
  CO8(grad_input_f16_8x4, kFloat16, kIeee, kGradInput, 8, 1)   \
  CO2(grad_input_f16_2x8, kFloat16, kIeee, kGradInput, 2, 2)   \
  CO8(grad_input_bf16_8x4, kBFloat16, kIeee, kGradInput, 8, 1) \
  CO2(grad_input_bf16_2x8, kBFloat16, kIeee, kGradInput, 2, 2)
#define CONVT_SIMT_INSTANCES(X) CONVT_SIMT_ROWS(X, X)

inline constexpr Instance kInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, direction, thread_co, quads) \
  {"simt_" #symbol, DataType::dtype, Precision::precision, Direction::direction, thread_co, quads},
    CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumInstances = count_of(kInstances);

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

}  // namespace convt

namespace convt::simt {

CONVT_SIMT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_GRAD_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::simt
