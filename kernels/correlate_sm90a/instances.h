// The kernel instances of the correlate engine: the one list that dispatch (correlate_sm90a/launch.cpp), planning and
// tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// How operands lie: rows of NCHW, of which those of grad_output keep their order in shared memory or come in boxes of
// 128 bytes of columns; such rows where the kernel is the stride; or pixels of channels_last.
enum class CorrelateForm : int32_t { kRows, kBoxes, kPatches, kPixels };

struct CorrelateInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t taps;  // neighbours of a row of the kernel, of a warpgroup; of patches the whole row
  int32_t columns;  // input channels
  int32_t consumers;  // warpgroups that multiply
  int32_t stride_w;  // of rows of half precision, whose taps are no dilated ones; 0: any
  CorrelateForm form;
};

// Of a warpgroup whose first operands are in registers: with more taps there are none left to add up grad_output for
// the bias.
inline constexpr int32_t kCorrelateMostBiasTaps = 4;

// X(symbol, dtype, precision, taps, columns, consumers, stride_w, form)
#define CONVT_CORRELATE_ROWS_TF32(X)                         \
  X(tf32_2x128, kFloat32, kTf32, 2, 128, 2, 0, kRows)        \
  X(tf32_2x128_boxes, kFloat32, kTf32, 2, 128, 2, 0, kBoxes) \
  X(tf32_3x96, kFloat32, kTf32, 3, 96, 2, 0, kRows)          \
  X(tf32_4x64, kFloat32, kTf32, 4, 64, 2, 0, kRows)          \
  X(tf32_5x64, kFloat32, kTf32, 5, 64, 2, 0, kRows)          \
  X(tf32_3x64x3, kFloat32, kTf32, 3, 64, 3, 0, kRows)
// Where the kernel is the stride.
#define CONVT_CORRELATE_PATCHES_OF(X, type, dtype, precision)       \
  X(type##_patches_2x128, dtype, precision, 2, 128, 2, 0, kPatches) \
  X(type##_patches_2x64, dtype, precision, 2, 64, 2, 0, kPatches)   \
  X(type##_patches_4x64, dtype, precision, 4, 64, 2, 0, kPatches)
#define CONVT_CORRELATE_TRANSPOSED(X)                          \
  X(tf32_pixels_2x128, kFloat32, kTf32, 2, 128, 2, 0, kPixels) \
  X(tf32_pixels_3x96, kFloat32, kTf32, 3, 96, 2, 0, kPixels)   \
  X(tf32_pixels_4x64, kFloat32, kTf32, 4, 64, 2, 0, kPixels)   \
  X(tf32_pixels_5x64, kFloat32, kTf32, 5, 64, 2, 0, kPixels)   \
  X(tf32_pixels_3x64x3, kFloat32, kTf32, 3, 64, 3, 0, kPixels)
#define CONVT_CORRELATE_ROWS_HALF(X, type, dtype)                   \
  X(type##_3x96, dtype, kHalf, 3, 96, 2, 1, kRows)                  \
  X(type##_5x64, dtype, kHalf, 5, 64, 2, 1, kRows)                  \
  X(type##_3x64x3, dtype, kHalf, 3, 64, 3, 1, kRows)                \
  X(type##_stride2_2x128, dtype, kHalf, 2, 128, 2, 2, kRows)        \
  X(type##_stride2_2x128_boxes, dtype, kHalf, 2, 128, 2, 2, kBoxes) \
  X(type##_stride2_4x64, dtype, kHalf, 4, 64, 2, 2, kRows)          \
  X(type##_stride2_3x64x3, dtype, kHalf, 3, 64, 3, 2, kRows)
#define CONVT_CORRELATE_PIXELS_OF(X, type, dtype)             \
  X(type##_pixels_2x128, dtype, kHalf, 2, 128, 2, 0, kPixels) \
  X(type##_pixels_3x128, dtype, kHalf, 3, 128, 2, 0, kPixels) \
  X(type##_pixels_4x64, dtype, kHalf, 4, 64, 2, 0, kPixels)   \
  X(type##_pixels_5x64, dtype, kHalf, 5, 64, 2, 0, kPixels)   \
  X(type##_pixels_3x64x3, dtype, kHalf, 3, 64, 3, 0, kPixels)
#define CONVT_CORRELATE_ROWS(X)                 \
  CONVT_CORRELATE_ROWS_TF32(X)                  \
  CONVT_CORRELATE_ROWS_HALF(X, bf16, kBFloat16) \
  CONVT_CORRELATE_ROWS_HALF(X, f16, kFloat16)
#define CONVT_CORRELATE_PATCHES(X)                      \
  CONVT_CORRELATE_PATCHES_OF(X, tf32, kFloat32, kTf32)  \
  CONVT_CORRELATE_PATCHES_OF(X, bf16, kBFloat16, kHalf) \
  CONVT_CORRELATE_PATCHES_OF(X, f16, kFloat16, kHalf)
#define CONVT_CORRELATE_PIXELS(X)               \
  CONVT_CORRELATE_PIXELS_OF(X, bf16, kBFloat16) \
  CONVT_CORRELATE_PIXELS_OF(X, f16, kFloat16)
#define CONVT_CORRELATE_INSTANCES(X) \
  CONVT_CORRELATE_ROWS(X) CONVT_CORRELATE_PATCHES(X) CONVT_CORRELATE_TRANSPOSED(X) CONVT_CORRELATE_PIXELS(X)

inline constexpr CorrelateInstance kCorrelateInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, taps, columns, consumers, stride_w, form)               \
  {"correlate_" #symbol, DataType::dtype, Precision::precision, taps, columns, consumers, stride_w, \
   CorrelateForm::form},
    CONVT_CORRELATE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumCorrelateInstances = count_of(kCorrelateInstances);

}  // namespace convt

namespace convt::correlate_sm90a {

CONVT_CORRELATE_INSTANCES(CONVT_DECLARE_KERNEL)

}  // namespace convt::correlate_sm90a
