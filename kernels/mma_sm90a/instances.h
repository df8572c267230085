// The compiled kernels of the mma engine: the lists that dispatch, planning, tests and the files of instances/ read.
// Rows of float16 and bfloat16 are the same but for the dtype.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// Of the forward pass: a warp adds up `column_tiles` x 16 columns times `position_tiles` x 8 positions.
struct MmaInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t column_tiles;
  int32_t position_tiles;
};

// X(symbol, dtype, precision, column_tiles, position_tiles)
#define CONVT_MMA_INSTANCES(X)         \
  X(tf32_16x64, kFloat32, kTf32, 1, 8) \
  X(f16_16x64, kFloat16, kHalf, 1, 8)  \
  X(bf16_16x64, kBFloat16, kHalf, 1, 8)

// Of tiles of whole rows.
#define CONVT_MMA_ROWS_INSTANCES(X)         \
  X(tf32_rows_48x32, kFloat32, kTf32, 3, 4) \
  X(f16_rows_48x32, kFloat16, kHalf, 3, 4)  \
  X(bf16_rows_48x32, kBFloat16, kHalf, 3, 4)

// Of the gradient of the input: `row_tiles` x 16 channels times `position_tiles` x 8 positions. `vectors`: what a lane
// reads of a step of K are 8 neighbouring bytes of both operands, and weights come with every stage.
struct MmaGradInputInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t position_tiles;
  bool vectors;
};

// Operands are sums of two TF32 numbers.
constexpr bool is_split(Precision precision) { return precision == Precision::kTf32x3; }

// X(symbol, dtype, precision, row_tiles, position_tiles, vectors)
#define CONVT_MMA_GRAD_INPUT_SHAPES(X, type, dtype, precision) \
  X(type##_grad_input_16x64, dtype, precision, 1, 8, false)    \
  X(type##_grad_input_32x32, dtype, precision, 2, 4, false)    \
  X(type##_grad_input_64x16, dtype, precision, 4, 2, false)    \
  X(type##_grad_input_64x32, dtype, precision, 4, 4, false)    \
  X(type##_grad_input_vectors_32x32, dtype, precision, 2, 4, true)
#define CONVT_MMA_GRAD_INPUT_TF32X3(X)                       \
  X(tf32x3_grad_input_16x64, kFloat32, kTf32x3, 1, 8, false) \
  X(tf32x3_grad_input_32x32, kFloat32, kTf32x3, 2, 4, false) \
  X(tf32x3_grad_input_64x16, kFloat32, kTf32x3, 4, 2, false) \
  X(tf32x3_grad_input_vectors_32x32, kFloat32, kTf32x3, 2, 4, true)
#define CONVT_MMA_GRAD_INPUT_INSTANCES(X)                \
  CONVT_MMA_GRAD_INPUT_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_MMA_GRAD_INPUT_SHAPES(X, f16, kFloat16, kHalf)   \
  CONVT_MMA_GRAD_INPUT_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_MMA_GRAD_INPUT_TF32X3(X)

// What are neighbours in the operands' memory and in a stage of the gradient of the weight, and how a warp reads them:
// columns or channels, element by element; channels, by ldmatrix (16 bits).
enum class WeightOperands : int32_t { kColumns, kPixels, kMatrices };

// Of the gradient of the weight: `row_tiles` x 16 (output channel, tap) pairs times `column_tiles` x 8 input channels.
struct MmaGradWeightInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t column_tiles;
  WeightOperands operands;
};

// X(symbol, dtype, precision, row_tiles, column_tiles, operands)
#define CONVT_MMA_GRAD_WEIGHT_SHAPES(X, type, dtype, precision)       \
  X(type##_grad_weight_32x8, dtype, precision, 2, 1, kColumns)        \
  X(type##_grad_weight_16x16, dtype, precision, 1, 2, kColumns)       \
  X(type##_grad_weight_16x32, dtype, precision, 1, 4, kColumns)       \
  X(type##_grad_weight_48x16, dtype, precision, 3, 2, kColumns)       \
  X(type##_grad_weight_32x24, dtype, precision, 2, 3, kColumns)       \
  X(type##_grad_weight_48x24, dtype, precision, 3, 3, kColumns)       \
  X(type##_grad_weight_48x32, dtype, precision, 3, 4, kColumns)       \
  X(type##_grad_weight_pixels_32x8, dtype, precision, 2, 1, kPixels)  \
  X(type##_grad_weight_pixels_48x16, dtype, precision, 3, 2, kPixels) \
  X(type##_grad_weight_pixels_48x24, dtype, precision, 3, 3, kPixels) \
  X(type##_grad_weight_pixels_48x32, dtype, precision, 3, 4, kPixels)
#define CONVT_MMA_GRAD_WEIGHT_MATRICES(X, type, dtype)                \
  X(type##_grad_weight_matrices_80x8, dtype, kHalf, 5, 1, kMatrices)  \
  X(type##_grad_weight_matrices_64x16, dtype, kHalf, 4, 2, kMatrices) \
  X(type##_grad_weight_matrices_64x32, dtype, kHalf, 4, 4, kMatrices)
#define CONVT_MMA_GRAD_WEIGHT_INSTANCES(X)                \
  CONVT_MMA_GRAD_WEIGHT_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_MMA_GRAD_WEIGHT_SHAPES(X, f16, kFloat16, kHalf)   \
  CONVT_MMA_GRAD_WEIGHT_MATRICES(X, f16, kFloat16)        \
  CONVT_MMA_GRAD_WEIGHT_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_MMA_GRAD_WEIGHT_MATRICES(X, bf16, kBFloat16)

#define CONVT_ROW(symbol, dtype, precision, ...) {"mma_" #symbol, DataType::dtype, Precision::precision, __VA_ARGS__},
inline constexpr MmaInstance kMmaInstances[] = {CONVT_MMA_INSTANCES(CONVT_ROW)};
inline constexpr MmaInstance kMmaRowsInstances[] = {CONVT_MMA_ROWS_INSTANCES(CONVT_ROW)};
inline constexpr MmaGradInputInstance kMmaGradInputInstances[] = {CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_ROW)};
#undef CONVT_ROW
#define CONVT_ROW(symbol, dtype, precision, row_tiles, column_tiles, operands) \
  {"mma_" #symbol, DataType::dtype, Precision::precision, row_tiles, column_tiles, WeightOperands::operands},
inline constexpr MmaGradWeightInstance kMmaGradWeightInstances[] = {CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_ROW)};
#undef CONVT_ROW

inline constexpr int32_t kNumMmaInstances = count_of(kMmaInstances);
inline constexpr int32_t kNumMmaRowsInstances = count_of(kMmaRowsInstances);
inline constexpr int32_t kNumMmaGradInputInstances = count_of(kMmaGradInputInstances);
inline constexpr int32_t kNumMmaGradWeightInstances = count_of(kMmaGradWeightInstances);

}  // namespace convt

namespace convt::mma_sm90a {

CONVT_MMA_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_ROWS_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::mma_sm90a
