// The compiled kernels of the thin engine: the one list that dispatch (launch/), planning and tests read.
#pragma once

#include <cstdint>

#include "problem/problem.h"

namespace convt {

// A thread adds up `outputs` virtual outputs (a channel in one phase each) at `positions` positions, in the order of
// class ieee.
struct ThinInstance {
  const char* name;
  DataType dtype;
  int32_t outputs;
  int32_t positions;
};

// X(symbol, dtype, outputs, positions)
#define CONVT_THIN_INSTANCES(X)       \
  X(ieee_f32_4x16, kFloat32, 4, 16)   \
  X(ieee_f32_8x8, kFloat32, 8, 8)     \
  X(ieee_f32_12x4, kFloat32, 12, 4)   \
  X(ieee_f32_16x4, kFloat32, 16, 4)   \
  X(ieee_f16_4x16, kFloat16, 4, 16)   \
  X(ieee_f16_8x8, kFloat16, 8, 8)     \
  X(ieee_f16_12x4, kFloat16, 12, 4)   \
  X(ieee_f16_16x4, kFloat16, 16, 4)   \
  X(ieee_bf16_4x16, kBFloat16, 4, 16) \
  X(ieee_bf16_8x8, kBFloat16, 8, 8)   \
  X(ieee_bf16_12x4, kBFloat16, 12, 4) \
  X(ieee_bf16_16x4, kBFloat16, 16, 4)

inline constexpr ThinInstance kThinInstances[] = {
#define CONVT_ROW(symbol, dtype, outputs, positions) {"thin_" #symbol, DataType::dtype, outputs, positions},
    CONVT_THIN_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumThinInstances = sizeof(kThinInstances) / sizeof(kThinInstances[0]);

// Position in kThinInstances.
enum ThinInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_thin_##symbol,
  CONVT_THIN_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt
