// The kernel instances that exist: the one list that dispatch (launch/), planning and tests read.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// One compiled kernel. A thread computes thread_co output channels of `quads` runs of four
// neighbouring positions.
struct Instance {
  const char* name;
  DataType dtype;
  Precision precision;  // the order of its sums: kIeee or kAten
  int32_t thread_co;
  int32_t quads;
};

// X(symbol, dtype, precision, thread_co, quads)
#define CONVT_SIMT_INSTANCES(X)            \
  X(ieee_f32_8x8, kFloat32, kIeee, 8, 2)   \
  X(ieee_f32_8x4, kFloat32, kIeee, 8, 1)   \
  X(ieee_f32_2x8, kFloat32, kIeee, 2, 2)   \
  X(aten_f32_8x4, kFloat32, kAten, 8, 1)   \
  X(aten_f32_2x8, kFloat32, kAten, 2, 2)   \
  X(ieee_f64_8x4, kFloat64, kIeee, 8, 1)   \
  X(ieee_f64_2x8, kFloat64, kIeee, 2, 2)   \
  X(ieee_f16_8x4, kFloat16, kIeee, 8, 1)   \
  X(ieee_f16_2x8, kFloat16, kIeee, 2, 2)   \
  X(ieee_bf16_8x4, kBFloat16, kIeee, 8, 1) \
  X(ieee_bf16_2x8, kBFloat16, kIeee, 2, 2)

inline constexpr Instance kInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, thread_co, quads) \
  {"simt_" #symbol, DataType::dtype, Precision::precision, thread_co, quads},
    CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumInstances = sizeof(kInstances) / sizeof(kInstances[0]);

// Position in kInstances of the row that CONVT_SIMT_INSTANCES calls `symbol`.
enum InstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_##symbol,
  CONVT_SIMT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt
