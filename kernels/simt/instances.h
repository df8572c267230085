// Compiled kernels of the exact-order engine. Launches, planning and tests read this list.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Kernel of the forward pass or of the gradient of the input. A thread computes thread_co output channels of `quads`
// runs of four neighbouring positions.
struct Instance {
  const char* name;
  DataType dtype;
  Precision precision;  // order of the sums: kIeee or kAten
  Direction direction;  // kForward or kGradInput
  int32_t thread_co;
  int32_t quads;
};

// Rows with thread_co 8 and rows with thread_co 2 are compiled in different files. nvcc compresses each file
// separately, and kernels of one shape differ little between dtypes.
inline constexpr Instance kInstances[] = {
    {"simt_ieee_f32_8x8", DataType::kFloat32, Precision::kIeee, Direction::kForward, 8, 2},
    {"simt_ieee_f32_8x4", DataType::kFloat32, Precision::kIeee, Direction::kForward, 8, 1},
    {"simt_ieee_f32_2x8", DataType::kFloat32, Precision::kIeee, Direction::kForward, 2, 2},
    {"simt_aten_f32_8x4", DataType::kFloat32, Precision::kAten, Direction::kForward, 8, 1},
    {"simt_aten_f32_2x8", DataType::kFloat32, Precision::kAten, Direction::kForward, 2, 2},
    {"simt_ieee_f64_8x4", DataType::kFloat64, Precision::kIeee, Direction::kForward, 8, 1},
    {"simt_ieee_f64_2x8", DataType::kFloat64, Precision::kIeee, Direction::kForward, 2, 2},
    {"simt_ieee_f16_8x4", DataType::kFloat16, Precision::kIeee, Direction::kForward, 8, 1},
    {"simt_ieee_f16_2x8", DataType::kFloat16, Precision::kIeee, Direction::kForward, 2, 2},
    {"simt_ieee_bf16_8x4", DataType::kBFloat16, Precision::kIeee, Direction::kForward, 8, 1},
    {"simt_ieee_bf16_2x8", DataType::kBFloat16, Precision::kIeee, Direction::kForward, 2, 2},
    {"simt_grad_input_f32_8x8", DataType::kFloat32, Precision::kIeee, Direction::kGradInput, 8, 2},
    {"simt_grad_input_f32_8x4", DataType::kFloat32, Precision::kIeee, Direction::kGradInput, 8, 1},
    {"simt_grad_input_f32_2x8", DataType::kFloat32, Precision::kIeee, Direction::kGradInput, 2, 2},
    {"simt_grad_input_f64_8x4", DataType::kFloat64, Precision::kIeee, Direction::kGradInput, 8, 1},
    {"simt_grad_input_f64_2x8", DataType::kFloat64, Precision::kIeee, Direction::kGradInput, 2, 2},
    {"simt_grad_input_f16_8x4", DataType::kFloat16, Precision::kIeee, Direction::kGradInput, 8, 1},
    {"simt_grad_input_f16_2x8", DataType::kFloat16, Precision::kIeee, Direction::kGradInput, 2, 2},
    {"simt_grad_input_bf16_8x4", DataType::kBFloat16, Precision::kIeee, Direction::kGradInput, 8, 1},
    {"simt_grad_input_bf16_2x8", DataType::kBFloat16, Precision::kIeee, Direction::kGradInput, 2, 2},
};
inline constexpr int32_t kNumInstances = count_of(kInstances);

// Kernel of the gradient of the weight. A thread accumulates thread_ci x thread_co channels x thread_kw neighbouring
// taps.
struct GradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t thread_ci;
  int32_t thread_co;
  int32_t thread_kw;
};

inline constexpr GradWeightInstance kGradWeightInstances[] = {
    {"simt_grad_weight_f32_8x4x3", DataType::kFloat32, 8, 4, 3},
    {"simt_grad_weight_f32_8x4x4", DataType::kFloat32, 8, 4, 4},
    {"simt_grad_weight_f32_8x4x2", DataType::kFloat32, 8, 4, 2},
    {"simt_grad_weight_f32_8x2x5", DataType::kFloat32, 8, 2, 5},
    {"simt_grad_weight_f32_8x2x7", DataType::kFloat32, 8, 2, 7},
    {"simt_grad_weight_f32_2x2x4", DataType::kFloat32, 2, 2, 4},
    {"simt_grad_weight_f64_4x2x3", DataType::kFloat64, 4, 2, 3},
    {"simt_grad_weight_f64_2x2x4", DataType::kFloat64, 2, 2, 4},
    {"simt_grad_weight_f16_8x4x3", DataType::kFloat16, 8, 4, 3},
    {"simt_grad_weight_f16_2x2x4", DataType::kFloat16, 2, 2, 4},
    {"simt_grad_weight_bf16_8x4x3", DataType::kBFloat16, 8, 4, 3},
    {"simt_grad_weight_bf16_2x2x4", DataType::kBFloat16, 2, 2, 4},
};
inline constexpr int32_t kNumGradWeightInstances = count_of(kGradWeightInstances);

}  // namespace convt

namespace convt::simt {

// Kernel of a row of kInstances with thread_co 8 or 2.
const void* kernel_of_co8(int32_t instance);
const void* kernel_of_co2(int32_t instance);
// Kernel of a row of kGradWeightInstances.
const void* grad_weight_kernel_of(int32_t instance);

}  // namespace convt::simt
