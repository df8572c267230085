// The kernel instances of the strided engine: the one list that dispatch (launch/strided.cpp), planning and tests read.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// What a position of the matrix product has.
enum class StridedForm : int32_t {
  kOutput,  // two columns of one row of the output, from 2 rows of 3 columns of the input
  kGather,  // an element of the input's gradient, from 4 rows of 4 columns of the output's
};

struct StridedInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  StridedForm form;
  int32_t block_n;  // result channels of a tile
};

// X(symbol, dtype, precision, form, block_n)
#define CONVT_STRIDED_INSTANCES(X)                   \
  X(tf32_output_64, kFloat32, kTf32, kOutput, 64)    \
  X(tf32_gather_128, kFloat32, kTf32, kGather, 128)  \
  X(tf32_gather_64, kFloat32, kTf32, kGather, 64)    \
  X(bf16_output_64, kBFloat16, kHalf, kOutput, 64)   \
  X(bf16_gather_128, kBFloat16, kHalf, kGather, 128) \
  X(bf16_gather_64, kBFloat16, kHalf, kGather, 64)   \
  X(f16_output_64, kFloat16, kHalf, kOutput, 64)     \
  X(f16_gather_128, kFloat16, kHalf, kGather, 128)   \
  X(f16_gather_64, kFloat16, kHalf, kGather, 64)

inline constexpr StridedInstance kStridedInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, form, block_n) \
  {"strided_" #symbol, DataType::dtype, Precision::precision, StridedForm::form, block_n},
    CONVT_STRIDED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumStridedInstances = sizeof(kStridedInstances) / sizeof(kStridedInstances[0]);

}  // namespace convt
