// The kernel instances of the wgmma engine: the one list that dispatch (wgmma_sm90a/launch.cpp), planning and tests
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A CTA: its threads, those of them that load, CTAs of an SM, and result channels that are staged at a time.
inline constexpr int32_t kWgmmaThreads = 256;
inline constexpr int32_t kWgmmaLoaders = 96;
inline constexpr int32_t kWgmmaBlocksPerSm = 2;
inline constexpr int32_t kWgmmaPassChannels = 8;

// A kernel of the wgmma engine: result channels of a tile.
struct WgmmaInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t block_n;
};

// X(symbol, dtype, precision, block_n): what a file of instances/ has.
#define CONVT_WGMMA_TF32(X)       \
  X(tf32_64, kFloat32, kTf32, 64) \
  X(tf32_32, kFloat32, kTf32, 32)
#define CONVT_WGMMA_TF32X3(X)         \
  X(tf32x3_64, kFloat32, kTf32x3, 64) \
  X(tf32x3_32, kFloat32, kTf32x3, 32)
#define CONVT_WGMMA_BF16(X)        \
  X(bf16_64, kBFloat16, kHalf, 64) \
  X(bf16_32, kBFloat16, kHalf, 32)
#define CONVT_WGMMA_F16(X)       \
  X(f16_64, kFloat16, kHalf, 64) \
  X(f16_32, kFloat16, kHalf, 32)
#define CONVT_WGMMA_INSTANCES(X) CONVT_WGMMA_TF32(X) CONVT_WGMMA_TF32X3(X) CONVT_WGMMA_BF16(X) CONVT_WGMMA_F16(X)

inline constexpr WgmmaInstance kWgmmaInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, block_n) {"wgmma_" #symbol, DataType::dtype, Precision::precision, block_n},
    CONVT_WGMMA_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumWgmmaInstances = count_of(kWgmmaInstances);

}  // namespace convt

namespace convt::wgmma_sm90a {

CONVT_WGMMA_INSTANCES(CONVT_DECLARE_PACKED_KERNEL)

}  // namespace convt::wgmma_sm90a
