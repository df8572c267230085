// Every kernel of the strided engine, one row each.
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

// X(symbol, dtype, precision, form, block_n, kernel, alternate): what a file of instances/ has.
#define CONVT_STRIDED_TF32(X)                                    \
  X(tf32_output_64, kFloat32, kTf32, kOutput, 64, 4, false)      \
  X(tf32_gather_128, kFloat32, kTf32, kGather, 128, 4, false)    \
  X(tf32_gather_64, kFloat32, kTf32, kGather, 64, 4, false)      \
  X(tf32_output_k3_32, kFloat32, kTf32, kOutput, 32, 3, false)   \
  X(tf32_split_64, kFloat32, kTf32, kOutput, 64, 4, true)        \
  X(tf32_split_k3_32, kFloat32, kTf32, kOutput, 32, 3, true)     \
  X(tf32_gather_k3_128, kFloat32, kTf32, kGather, 128, 3, false) \
  X(tf32_gather_k3_64, kFloat32, kTf32, kGather, 64, 3, false)
#define CONVT_STRIDED_TF32X3(X)                                    \
  X(tf32x3_output_32, kFloat32, kTf32x3, kOutput, 32, 4, false)    \
  X(tf32x3_gather_64, kFloat32, kTf32x3, kGather, 64, 4, false)    \
  X(tf32x3_output_k3_32, kFloat32, kTf32x3, kOutput, 32, 3, false) \
  X(tf32x3_gather_k3_64, kFloat32, kTf32x3, kGather, 64, 3, false)
#define CONVT_STRIDED_HALF(X)                                     \
  X(bf16_output_64, kBFloat16, kHalf, kOutput, 64, 4, false)      \
  X(bf16_gather_128, kBFloat16, kHalf, kGather, 128, 4, false)    \
  X(bf16_gather_64, kBFloat16, kHalf, kGather, 64, 4, false)      \
  X(bf16_output_k3_32, kBFloat16, kHalf, kOutput, 32, 3, false)   \
  X(bf16_split_64, kBFloat16, kHalf, kOutput, 64, 4, true)        \
  X(bf16_split_k3_32, kBFloat16, kHalf, kOutput, 32, 3, true)     \
  X(bf16_gather_k3_128, kBFloat16, kHalf, kGather, 128, 3, false) \
  X(bf16_gather_k3_64, kBFloat16, kHalf, kGather, 64, 3, false)   \
  X(f16_output_64, kFloat16, kHalf, kOutput, 64, 4, false)        \
  X(f16_gather_128, kFloat16, kHalf, kGather, 128, 4, false)      \
  X(f16_gather_64, kFloat16, kHalf, kGather, 64, 4, false)        \
  X(f16_output_k3_32, kFloat16, kHalf, kOutput, 32, 3, false)     \
  X(f16_split_64, kFloat16, kHalf, kOutput, 64, 4, true)          \
  X(f16_split_k3_32, kFloat16, kHalf, kOutput, 32, 3, true)       \
  X(f16_gather_k3_128, kFloat16, kHalf, kGather, 128, 3, false)   \
  X(f16_gather_k3_64, kFloat16, kHalf, kGather, 64, 3, false)
#define CONVT_STRIDED_INSTANCES(X) CONVT_STRIDED_TF32(X) CONVT_STRIDED_TF32X3(X) CONVT_STRIDED_HALF(X)

inline constexpr StridedInstance kStridedInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, form, block_n, kernel, alternate) \
  {"strided_" #symbol, DataType::dtype, Precision::precision, StridedForm::form, block_n, kernel, alternate},
    CONVT_STRIDED_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumStridedInstances = count_of(kStridedInstances);

}  // namespace convt

namespace convt::strided_sm90a {

CONVT_STRIDED_INSTANCES(CONVT_DECLARE_PACKED_KERNEL)

}  // namespace convt::strided_sm90a
