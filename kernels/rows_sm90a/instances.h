// Every kernel of the rows engine, one row each.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// What a position of the matrix product has.
enum class StridedForm : int32_t {
  kOutput,  // two columns of one row of the output, or of both rows for a 3 x 3 kernel, from 2 rows of the input
  kGather,  // an element of the input's gradient, from as many rows of the output's as the kernel has
};

struct StridedInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  StridedForm form;
  int32_t block_n;  // result channels of a tile
  int32_t kernel;  // of both axes
  bool alternate;  // a tile's warpgroups have the same positions and every other stage
};

// X(symbol, dtype, precision, form, block_n, kernel, alternate)
#define CONVT_STRIDED_SHAPES(X, type, dtype, precision)             \
  X(type##_output_64, dtype, precision, kOutput, 64, 4, false)      \
  X(type##_gather_128, dtype, precision, kGather, 128, 4, false)    \
  X(type##_gather_64, dtype, precision, kGather, 64, 4, false)      \
  X(type##_output_k3_32, dtype, precision, kOutput, 32, 3, false)   \
  X(type##_split_64, dtype, precision, kOutput, 64, 4, true)        \
  X(type##_split_k3_32, dtype, precision, kOutput, 32, 3, true)     \
  X(type##_gather_k3_128, dtype, precision, kGather, 128, 3, false) \
  X(type##_gather_k3_64, dtype, precision, kGather, 64, 3, false)
#define CONVT_STRIDED_TF32X3(X)                                    \
  X(tf32x3_output_32, kFloat32, kTf32x3, kOutput, 32, 4, false)    \
  X(tf32x3_gather_64, kFloat32, kTf32x3, kGather, 64, 4, false)    \
  X(tf32x3_output_k3_32, kFloat32, kTf32x3, kOutput, 32, 3, false) \
  X(tf32x3_gather_k3_64, kFloat32, kTf32x3, kGather, 64, 3, false)
#define CONVT_STRIDED_INSTANCES(X)                \
  CONVT_STRIDED_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_STRIDED_TF32X3(X)                         \
  CONVT_STRIDED_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_STRIDED_SHAPES(X, f16, kFloat16, kHalf)

inline constexpr StridedInstance kStridedInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, form, block_n, kernel, alternate) \
  {"strided_" #symbol, DataType::dtype, Precision::precision, StridedForm::form, block_n, kernel, alternate},
    CONVT_STRIDED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumStridedInstances = count_of(kStridedInstances);

// A kernel of the window engine, for weights of kWindowKernelH x kernel_w taps and tiles of block_n result channels.
struct WindowInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t block_n;
  int32_t kernel_w;
};

// X(symbol, dtype, precision, block_n, kernel_w)
#define CONVT_WINDOW_SHAPES(X, type, dtype, precision) \
  X(type##_64x3, dtype, precision, 64, 3)              \
  X(type##_64x5, dtype, precision, 64, 5)              \
  X(type##_64x7, dtype, precision, 64, 7)              \
  X(type##_32x3, dtype, precision, 32, 3)              \
  X(type##_32x5, dtype, precision, 32, 5)              \
  X(type##_32x7, dtype, precision, 32, 7)
#define CONVT_WINDOW_INSTANCES(X)                   \
  CONVT_WINDOW_SHAPES(X, tf32, kFloat32, kTf32)     \
  CONVT_WINDOW_SHAPES(X, tf32x3, kFloat32, kTf32x3) \
  CONVT_WINDOW_SHAPES(X, bf16, kBFloat16, kHalf)    \
  CONVT_WINDOW_SHAPES(X, f16, kFloat16, kHalf)

inline constexpr WindowInstance kWindowInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, block_n, kernel_w) \
  {"window_" #symbol, DataType::dtype, Precision::precision, block_n, kernel_w},
    CONVT_WINDOW_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumWindowInstances = count_of(kWindowInstances);

}  // namespace convt

namespace convt::rows_sm90a::strided {

CONVT_STRIDED_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::rows_sm90a::strided

namespace convt::rows_sm90a::window {

CONVT_WINDOW_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::rows_sm90a::window
