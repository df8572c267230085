// The kernel instances of the correlate engine: the one list that dispatch (correlate_sm90a/launch.cpp), planning and
// tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

struct CorrelateInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t taps;  // neighbours of a row of the kernel, of a warpgroup
  int32_t columns;  // input channels
  int32_t consumers;  // warpgroups that multiply
  int32_t stride_w;  // of half precision, whose taps are no dilated ones; 0: any
  bool boxes;  // rows of grad_output lie in boxes of 128 bytes of columns
};

// X(symbol, dtype, precision, taps, columns, consumers, stride_w, boxes)
#define CONVT_CORRELATE_TF32(X)                            \
  X(tf32_2x128, kFloat32, kTf32, 2, 128, 2, 0, false)      \
  X(tf32_2x128_boxes, kFloat32, kTf32, 2, 128, 2, 0, true) \
  X(tf32_3x96, kFloat32, kTf32, 3, 96, 2, 0, false)        \
  X(tf32_4x64, kFloat32, kTf32, 4, 64, 2, 0, false)        \
  X(tf32_5x64, kFloat32, kTf32, 5, 64, 2, 0, false)        \
  X(tf32_3x64x3, kFloat32, kTf32, 3, 64, 3, 0, false)
#define CONVT_CORRELATE_HALF(X, type, dtype)                      \
  X(type##_3x96, dtype, kHalf, 3, 96, 2, 1, false)                \
  X(type##_5x64, dtype, kHalf, 5, 64, 2, 1, false)                \
  X(type##_3x64x3, dtype, kHalf, 3, 64, 3, 1, false)              \
  X(type##_stride2_2x128, dtype, kHalf, 2, 128, 2, 2, false)      \
  X(type##_stride2_2x128_boxes, dtype, kHalf, 2, 128, 2, 2, true) \
  X(type##_stride2_4x64, dtype, kHalf, 4, 64, 2, 2, false)        \
  X(type##_stride2_3x64x3, dtype, kHalf, 3, 64, 3, 2, false)
#define CONVT_CORRELATE_BF16(X) CONVT_CORRELATE_HALF(X, bf16, kBFloat16)
#define CONVT_CORRELATE_F16(X) CONVT_CORRELATE_HALF(X, f16, kFloat16)
#define CONVT_CORRELATE_INSTANCES(X) CONVT_CORRELATE_TF32(X) CONVT_CORRELATE_BF16(X) CONVT_CORRELATE_F16(X)

inline constexpr CorrelateInstance kCorrelateInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, taps, columns, consumers, stride_w, boxes) \
  {"correlate_" #symbol, DataType::dtype, Precision::precision, taps, columns, consumers, stride_w, boxes},
    CONVT_CORRELATE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumCorrelateInstances = count_of(kCorrelateInstances);

}  // namespace convt

namespace convt::correlate_sm90a {

CONVT_CORRELATE_INSTANCES(CONVT_DECLARE_KERNEL)

const void* pack_rows_of(DataType dtype);

}  // namespace convt::correlate_sm90a
