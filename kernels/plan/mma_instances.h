// The compiled kernels of the mma engine: the one list that dispatch (launch/), planning and tests read.
#pragma once

#include <cstdint>

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

inline constexpr int32_t kNumMmaInstances = sizeof(kMmaInstances) / sizeof(kMmaInstances[0]);

// Position in kMmaInstances.
enum MmaInstanceIndex : int32_t {
#define CONVT_ROW(symbol, ...) k_mma_##symbol,
  CONVT_MMA_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

}  // namespace convt
