// Every kernel of the rows engine, one row each.
#pragma once

#include "plan/kernel_table.h"
#include "rows_sm90a/layout.h"

namespace convt {

struct StridedInstance : StridedShape {
  const char* name;
};

// X(symbol, dtype, precision, block_n, form, kernel, alternate)
#define CONVT_STRIDED_SHAPES(X, type, dtype, precision)             \
  X(type##_output_64, dtype, precision, 64, kOutput, 4, false)      \
  X(type##_gather_128, dtype, precision, 128, kGather, 4, false)    \
  X(type##_gather_64, dtype, precision, 64, kGather, 4, false)      \
  X(type##_output_k3_32, dtype, precision, 32, kOutput, 3, false)   \
  X(type##_split_64, dtype, precision, 64, kOutput, 4, true)        \
  X(type##_split_k3_32, dtype, precision, 32, kOutput, 3, true)     \
  X(type##_gather_k3_128, dtype, precision, 128, kGather, 3, false) \
  X(type##_gather_k3_64, dtype, precision, 64, kGather, 3, false)
#define CONVT_STRIDED_TF32X3(X)                                    \
  X(tf32x3_output_32, kFloat32, kTf32x3, 32, kOutput, 4, false)    \
  X(tf32x3_gather_64, kFloat32, kTf32x3, 64, kGather, 4, false)    \
  X(tf32x3_output_k3_32, kFloat32, kTf32x3, 32, kOutput, 3, false) \
  X(tf32x3_gather_k3_64, kFloat32, kTf32x3, 64, kGather, 3, false)
#define CONVT_STRIDED_INSTANCES(X)                \
  CONVT_STRIDED_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_STRIDED_TF32X3(X)                         \
  CONVT_STRIDED_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_STRIDED_SHAPES(X, f16, kFloat16, kHalf)
#define CONVT_STRIDED_SHAPE_OF(dtype, precision, block_n, form, kernel, alternate) \
  StridedShape { {DataType::dtype, Precision::precision, block_n}, StridedForm::form, kernel, alternate }

inline constexpr StridedInstance kStridedInstances[] = {
#define CONVT_ROW(symbol, ...) {CONVT_STRIDED_SHAPE_OF(__VA_ARGS__), "strided_" #symbol},
    CONVT_STRIDED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

// For weights of kWindowKernelH x kernel_w taps.
struct WindowInstance : WindowShape {
  const char* name;
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
#define CONVT_WINDOW_SHAPE_OF(dtype, precision, block_n, kernel_w) \
  WindowShape { {DataType::dtype, Precision::precision, block_n}, kernel_w }

inline constexpr WindowInstance kWindowInstances[] = {
#define CONVT_ROW(symbol, ...) {CONVT_WINDOW_SHAPE_OF(__VA_ARGS__), "window_" #symbol},
    CONVT_WINDOW_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

namespace rows_sm90a::strided {
CONVT_STRIDED_INSTANCES(CONVT_DECLARE_KERNEL)
}

namespace rows_sm90a::window {
CONVT_WINDOW_INSTANCES(CONVT_DECLARE_KERNEL)
}

}  // namespace convt
