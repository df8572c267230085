// All kernels of the mma engine, one row each. The rows of float16 and bfloat16 differ only in the dtype.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Sides of an mma.sync product.
inline constexpr int32_t kMmaColumns = 16;
inline constexpr int32_t kMmaPositions = 8;

// Forward pass: a warp accumulates `column_tiles` x 16 columns by `position_tiles` x 8 positions.
struct MmaInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t column_tiles;
  int32_t position_tiles;
};

// Gradient of the input: a warp accumulates `row_tiles` x 16 channels by `position_tiles` x 8 positions.
struct MmaGradInputInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t position_tiles;
};

// Operands are sums of two TF32 numbers.
constexpr bool is_split(Precision precision) { return precision == Precision::kTf32x3; }

// The contiguous dimension of both operands and of a stage in the gradient of the weight: columns, or channels.
enum class WeightOperands : int32_t { kColumns, kPixels };

// Gradient of the weight: a warp accumulates `row_tiles` x 16 (output channel, tap) pairs by `column_tiles` x 8 input
// channels.
struct MmaGradWeightInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t column_tiles;
  WeightOperands operands;
};

inline constexpr MmaInstance kMmaRowsInstances[] = {
    {"mma_tf32_rows_48x32", DataType::kFloat32, Precision::kTf32, 3, 4},
    {"mma_f16_rows_48x32", DataType::kFloat16, Precision::kHalf, 3, 4},
    {"mma_bf16_rows_48x32", DataType::kBFloat16, Precision::kHalf, 3, 4},
};
inline constexpr MmaGradInputInstance kMmaGradInputInstances[] = {
    {"mma_tf32_grad_input_16x64", DataType::kFloat32, Precision::kTf32, 1, 8},
    {"mma_tf32_grad_input_32x32", DataType::kFloat32, Precision::kTf32, 2, 4},
    {"mma_tf32_grad_input_64x16", DataType::kFloat32, Precision::kTf32, 4, 2},
    {"mma_tf32_grad_input_64x32", DataType::kFloat32, Precision::kTf32, 4, 4},
    {"mma_f16_grad_input_16x64", DataType::kFloat16, Precision::kHalf, 1, 8},
    {"mma_f16_grad_input_32x32", DataType::kFloat16, Precision::kHalf, 2, 4},
    {"mma_f16_grad_input_64x16", DataType::kFloat16, Precision::kHalf, 4, 2},
    {"mma_f16_grad_input_64x32", DataType::kFloat16, Precision::kHalf, 4, 4},
    {"mma_bf16_grad_input_16x64", DataType::kBFloat16, Precision::kHalf, 1, 8},
    {"mma_bf16_grad_input_32x32", DataType::kBFloat16, Precision::kHalf, 2, 4},
    {"mma_bf16_grad_input_64x16", DataType::kBFloat16, Precision::kHalf, 4, 2},
    {"mma_bf16_grad_input_64x32", DataType::kBFloat16, Precision::kHalf, 4, 4},
    {"mma_tf32x3_grad_input_16x64", DataType::kFloat32, Precision::kTf32x3, 1, 8},
    {"mma_tf32x3_grad_input_32x32", DataType::kFloat32, Precision::kTf32x3, 2, 4},
    {"mma_tf32x3_grad_input_64x16", DataType::kFloat32, Precision::kTf32x3, 4, 2},
};
inline constexpr MmaGradWeightInstance kMmaGradWeightInstances[] = {
    {"mma_tf32_grad_weight_32x8", DataType::kFloat32, Precision::kTf32, 2, 1, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_16x16", DataType::kFloat32, Precision::kTf32, 1, 2, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_16x32", DataType::kFloat32, Precision::kTf32, 1, 4, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_48x16", DataType::kFloat32, Precision::kTf32, 3, 2, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_32x24", DataType::kFloat32, Precision::kTf32, 2, 3, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_48x24", DataType::kFloat32, Precision::kTf32, 3, 3, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_48x32", DataType::kFloat32, Precision::kTf32, 3, 4, WeightOperands::kColumns},
    {"mma_tf32_grad_weight_pixels_32x8", DataType::kFloat32, Precision::kTf32, 2, 1, WeightOperands::kPixels},
    {"mma_tf32_grad_weight_pixels_48x16", DataType::kFloat32, Precision::kTf32, 3, 2, WeightOperands::kPixels},
    {"mma_tf32_grad_weight_pixels_48x24", DataType::kFloat32, Precision::kTf32, 3, 3, WeightOperands::kPixels},
    {"mma_tf32_grad_weight_pixels_48x32", DataType::kFloat32, Precision::kTf32, 3, 4, WeightOperands::kPixels},
    {"mma_f16_grad_weight_32x8", DataType::kFloat16, Precision::kHalf, 2, 1, WeightOperands::kColumns},
    {"mma_f16_grad_weight_16x16", DataType::kFloat16, Precision::kHalf, 1, 2, WeightOperands::kColumns},
    {"mma_f16_grad_weight_16x32", DataType::kFloat16, Precision::kHalf, 1, 4, WeightOperands::kColumns},
    {"mma_f16_grad_weight_48x16", DataType::kFloat16, Precision::kHalf, 3, 2, WeightOperands::kColumns},
    {"mma_f16_grad_weight_32x24", DataType::kFloat16, Precision::kHalf, 2, 3, WeightOperands::kColumns},
    {"mma_f16_grad_weight_48x24", DataType::kFloat16, Precision::kHalf, 3, 3, WeightOperands::kColumns},
    {"mma_f16_grad_weight_48x32", DataType::kFloat16, Precision::kHalf, 3, 4, WeightOperands::kColumns},
    {"mma_f16_grad_weight_pixels_32x8", DataType::kFloat16, Precision::kHalf, 2, 1, WeightOperands::kPixels},
    {"mma_f16_grad_weight_pixels_48x16", DataType::kFloat16, Precision::kHalf, 3, 2, WeightOperands::kPixels},
    {"mma_f16_grad_weight_pixels_48x24", DataType::kFloat16, Precision::kHalf, 3, 3, WeightOperands::kPixels},
    {"mma_f16_grad_weight_pixels_48x32", DataType::kFloat16, Precision::kHalf, 3, 4, WeightOperands::kPixels},
    {"mma_bf16_grad_weight_32x8", DataType::kBFloat16, Precision::kHalf, 2, 1, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_16x16", DataType::kBFloat16, Precision::kHalf, 1, 2, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_16x32", DataType::kBFloat16, Precision::kHalf, 1, 4, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_48x16", DataType::kBFloat16, Precision::kHalf, 3, 2, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_32x24", DataType::kBFloat16, Precision::kHalf, 2, 3, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_48x24", DataType::kBFloat16, Precision::kHalf, 3, 3, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_48x32", DataType::kBFloat16, Precision::kHalf, 3, 4, WeightOperands::kColumns},
    {"mma_bf16_grad_weight_pixels_32x8", DataType::kBFloat16, Precision::kHalf, 2, 1, WeightOperands::kPixels},
    {"mma_bf16_grad_weight_pixels_48x16", DataType::kBFloat16, Precision::kHalf, 3, 2, WeightOperands::kPixels},
    {"mma_bf16_grad_weight_pixels_48x24", DataType::kBFloat16, Precision::kHalf, 3, 3, WeightOperands::kPixels},
    {"mma_bf16_grad_weight_pixels_48x32", DataType::kBFloat16, Precision::kHalf, 3, 4, WeightOperands::kPixels},
};
inline constexpr int32_t kNumMmaRowsInstances = count_of(kMmaRowsInstances);
inline constexpr int32_t kNumMmaGradInputInstances = count_of(kMmaGradInputInstances);
inline constexpr int32_t kNumMmaGradWeightInstances = count_of(kMmaGradWeightInstances);

}  // namespace convt

namespace convt::mma_sm90a {

// The kernel of a row of each list.
const void* rows_kernel_of(int32_t instance);
const void* grad_input_kernel_of(int32_t instance);
const void* grad_weight_kernel_of(int32_t instance);

}  // namespace convt::mma_sm90a
