// The compiled kernels of the mma engine: the one list that dispatch (launch/), planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A warp adds up `column_tiles` x 16 columns times `position_tiles` x 8 positions.
struct MmaInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t column_tiles;
  int32_t position_tiles;
};

// X(symbol, dtype, precision, column_tiles, position_tiles)
#define CONVT_MMA_INSTANCES(X)          \
  X(tf32_48x32, kFloat32, kTf32, 3, 4)  \
  X(tf32_16x64, kFloat32, kTf32, 1, 8)  \
  X(f16_48x32, kFloat16, kHalf, 3, 4)   \
  X(f16_16x64, kFloat16, kHalf, 1, 8)   \
  X(bf16_48x32, kBFloat16, kHalf, 3, 4) \
  X(bf16_16x64, kBFloat16, kHalf, 1, 8)

inline constexpr MmaInstance kMmaInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, column_tiles, position_tiles) \
  {"mma_" #symbol, DataType::dtype, Precision::precision, column_tiles, position_tiles},
    CONVT_MMA_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// The same for tiles of whole rows.
// X(symbol, dtype, precision, column_tiles, position_tiles)
#define CONVT_MMA_ROWS_INSTANCES(X)         \
  X(tf32_rows_48x32, kFloat32, kTf32, 3, 4) \
  X(f16_rows_48x32, kFloat16, kHalf, 3, 4)  \
  X(bf16_rows_48x32, kBFloat16, kHalf, 3, 4)

inline constexpr MmaInstance kMmaRowsInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, column_tiles, position_tiles) \
  {"mma_" #symbol, DataType::dtype, Precision::precision, column_tiles, position_tiles},
    CONVT_MMA_ROWS_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumMmaRowsInstances = count_of(kMmaRowsInstances);

// Position in kMmaRowsInstances.
enum MmaRowsInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_mma_##symbol,
  CONVT_MMA_ROWS_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// The same for the gradient of the input: `row_tiles` x 16 channels times `position_tiles` x 8 positions. `vectors`:
// what a lane reads of a step of K are 8 neighbouring bytes of both operands, and weights come with every stage.
struct MmaGradInputInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t position_tiles;
  bool vectors;
};

// Operands are sums of two TF32 numbers.
constexpr bool is_split(const MmaGradInputInstance& instance) { return instance.precision == Precision::kTf32x3; }

// X(symbol, dtype, precision, row_tiles, position_tiles, vectors)
#define CONVT_MMA_GRAD_INPUT_INSTANCES(X)                        \
  X(tf32_grad_input_16x64, kFloat32, kTf32, 1, 8, false)         \
  X(tf32_grad_input_32x32, kFloat32, kTf32, 2, 4, false)         \
  X(tf32_grad_input_64x16, kFloat32, kTf32, 4, 2, false)         \
  X(tf32_grad_input_64x32, kFloat32, kTf32, 4, 4, false)         \
  X(tf32_grad_input_vectors_32x32, kFloat32, kTf32, 2, 4, true)  \
  X(f16_grad_input_16x64, kFloat16, kHalf, 1, 8, false)          \
  X(f16_grad_input_32x32, kFloat16, kHalf, 2, 4, false)          \
  X(f16_grad_input_64x16, kFloat16, kHalf, 4, 2, false)          \
  X(f16_grad_input_64x32, kFloat16, kHalf, 4, 4, false)          \
  X(f16_grad_input_vectors_32x32, kFloat16, kHalf, 2, 4, true)   \
  X(bf16_grad_input_16x64, kBFloat16, kHalf, 1, 8, false)        \
  X(bf16_grad_input_32x32, kBFloat16, kHalf, 2, 4, false)        \
  X(bf16_grad_input_64x16, kBFloat16, kHalf, 4, 2, false)        \
  X(bf16_grad_input_64x32, kBFloat16, kHalf, 4, 4, false)        \
  X(bf16_grad_input_vectors_32x32, kBFloat16, kHalf, 2, 4, true) \
  X(tf32x3_grad_input_16x64, kFloat32, kTf32x3, 1, 8, false)     \
  X(tf32x3_grad_input_32x32, kFloat32, kTf32x3, 2, 4, false)     \
  X(tf32x3_grad_input_64x16, kFloat32, kTf32x3, 4, 2, false)     \
  X(tf32x3_grad_input_vectors_32x32, kFloat32, kTf32x3, 2, 4, true)

inline constexpr MmaGradInputInstance kMmaGradInputInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, row_tiles, position_tiles, vectors) \
  {"mma_" #symbol, DataType::dtype, Precision::precision, row_tiles, position_tiles, vectors},
    CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumMmaGradInputInstances = count_of(kMmaGradInputInstances);

inline constexpr int32_t kNumMmaInstances = count_of(kMmaInstances);

// Position in kMmaInstances.
enum MmaInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_mma_##symbol,
  CONVT_MMA_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// Position in kMmaGradInputInstances.
enum MmaGradInputInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_mma_##symbol,
  CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// What are neighbours in the operands' memory and in a stage of the gradient of the weight, and how a warp reads them:
// columns or channels, element by element; channels, by ldmatrix (16 bits).
enum class WeightOperands : int32_t { kColumns, kPixels, kMatrices };

// The same for the gradient of the weight: `row_tiles` x 16 (output channel, tap) pairs times `column_tiles` x 8 input
// channels.
struct MmaGradWeightInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t row_tiles;
  int32_t column_tiles;
  WeightOperands operands;
};

// X(symbol, dtype, precision, row_tiles, column_tiles, operands)
#define CONVT_MMA_GRAD_WEIGHT_INSTANCES(X)                              \
  X(tf32_grad_weight_32x8, kFloat32, kTf32, 2, 1, kColumns)             \
  X(tf32_grad_weight_16x16, kFloat32, kTf32, 1, 2, kColumns)            \
  X(tf32_grad_weight_16x32, kFloat32, kTf32, 1, 4, kColumns)            \
  X(tf32_grad_weight_48x16, kFloat32, kTf32, 3, 2, kColumns)            \
  X(tf32_grad_weight_32x24, kFloat32, kTf32, 2, 3, kColumns)            \
  X(tf32_grad_weight_48x24, kFloat32, kTf32, 3, 3, kColumns)            \
  X(tf32_grad_weight_48x32, kFloat32, kTf32, 3, 4, kColumns)            \
  X(tf32_grad_weight_pixels_32x8, kFloat32, kTf32, 2, 1, kPixels)       \
  X(tf32_grad_weight_pixels_48x16, kFloat32, kTf32, 3, 2, kPixels)      \
  X(tf32_grad_weight_pixels_48x24, kFloat32, kTf32, 3, 3, kPixels)      \
  X(tf32_grad_weight_pixels_48x32, kFloat32, kTf32, 3, 4, kPixels)      \
  X(f16_grad_weight_32x8, kFloat16, kHalf, 2, 1, kColumns)              \
  X(f16_grad_weight_16x16, kFloat16, kHalf, 1, 2, kColumns)             \
  X(f16_grad_weight_16x32, kFloat16, kHalf, 1, 4, kColumns)             \
  X(f16_grad_weight_48x16, kFloat16, kHalf, 3, 2, kColumns)             \
  X(f16_grad_weight_32x24, kFloat16, kHalf, 2, 3, kColumns)             \
  X(f16_grad_weight_48x24, kFloat16, kHalf, 3, 3, kColumns)             \
  X(f16_grad_weight_48x32, kFloat16, kHalf, 3, 4, kColumns)             \
  X(f16_grad_weight_pixels_32x8, kFloat16, kHalf, 2, 1, kPixels)        \
  X(f16_grad_weight_pixels_48x16, kFloat16, kHalf, 3, 2, kPixels)       \
  X(f16_grad_weight_pixels_48x24, kFloat16, kHalf, 3, 3, kPixels)       \
  X(f16_grad_weight_pixels_48x32, kFloat16, kHalf, 3, 4, kPixels)       \
  X(f16_grad_weight_matrices_80x8, kFloat16, kHalf, 5, 1, kMatrices)    \
  X(f16_grad_weight_matrices_64x16, kFloat16, kHalf, 4, 2, kMatrices)   \
  X(f16_grad_weight_matrices_64x32, kFloat16, kHalf, 4, 4, kMatrices)   \
  X(bf16_grad_weight_32x8, kBFloat16, kHalf, 2, 1, kColumns)            \
  X(bf16_grad_weight_16x16, kBFloat16, kHalf, 1, 2, kColumns)           \
  X(bf16_grad_weight_16x32, kBFloat16, kHalf, 1, 4, kColumns)           \
  X(bf16_grad_weight_48x16, kBFloat16, kHalf, 3, 2, kColumns)           \
  X(bf16_grad_weight_32x24, kBFloat16, kHalf, 2, 3, kColumns)           \
  X(bf16_grad_weight_48x24, kBFloat16, kHalf, 3, 3, kColumns)           \
  X(bf16_grad_weight_48x32, kBFloat16, kHalf, 3, 4, kColumns)           \
  X(bf16_grad_weight_pixels_32x8, kBFloat16, kHalf, 2, 1, kPixels)      \
  X(bf16_grad_weight_pixels_48x16, kBFloat16, kHalf, 3, 2, kPixels)     \
  X(bf16_grad_weight_pixels_48x24, kBFloat16, kHalf, 3, 3, kPixels)     \
  X(bf16_grad_weight_pixels_48x32, kBFloat16, kHalf, 3, 4, kPixels)     \
  X(bf16_grad_weight_matrices_80x8, kBFloat16, kHalf, 5, 1, kMatrices)  \
  X(bf16_grad_weight_matrices_64x16, kBFloat16, kHalf, 4, 2, kMatrices) \
  X(bf16_grad_weight_matrices_64x32, kBFloat16, kHalf, 4, 4, kMatrices)

inline constexpr MmaGradWeightInstance kMmaGradWeightInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, row_tiles, column_tiles, operands) \
  {"mma_" #symbol, DataType::dtype, Precision::precision, row_tiles, column_tiles, WeightOperands::operands},
    CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumMmaGradWeightInstances = count_of(kMmaGradWeightInstances);

// Position in kMmaGradWeightInstances.
enum MmaGradWeightInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_mma_##symbol,
  CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt

namespace convt::mma_sm90a {

CONVT_MMA_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_ROWS_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_GRAD_INPUT_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_MMA_GRAD_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::mma_sm90a
