// The kernel instances of the portable engine: the lists that dispatch, planning, tests and the files of instances/
// read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel for the forward pass and the gradient of the input: a CTA's tile of the result, positions x channels, which
// warps_m x warps_n warps share.
struct PortableInstance {
  const char* name;
  DataType dtype;
  int32_t block_m;
  int32_t block_n;
  int32_t warps_m;
  int32_t warps_n;
};

// X(symbol, dtype, block_m, block_n, warps_m, warps_n)
#define CONVT_PORTABLE_TILES(X, type, dtype) \
  X(type##_128x128, dtype, 128, 128, 2, 2)   \
  X(type##_256x64, dtype, 256, 64, 4, 1)     \
  X(type##_128x64, dtype, 128, 64, 2, 2)     \
  X(type##_128x32, dtype, 128, 32, 4, 1)     \
  X(type##_64x64, dtype, 64, 64, 2, 2)
#define CONVT_PORTABLE_INSTANCES(X)        \
  CONVT_PORTABLE_TILES(X, f16, kFloat16)   \
  CONVT_PORTABLE_TILES(X, bf16, kBFloat16) \
  CONVT_PORTABLE_TILES(X, tf32, kFloat32)

inline constexpr PortableInstance kPortableInstances[] = {
#define CONVT_ROW(symbol, dtype, block_m, block_n, warps_m, warps_n) \
  {"portable_" #symbol, DataType::dtype, block_m, block_n, warps_m, warps_n},
    CONVT_PORTABLE_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};
inline constexpr int32_t kNumPortableInstances = count_of(kPortableInstances);

// A kernel for the gradient of the weight: a CTA's tile is block x block pairs of an input and an output channel of one
// tap, which 2 x 2 warps share.
struct PortableGradWeightInstance {
  const char* name;
  DataType dtype;
  int32_t block;
};

// X(symbol, dtype, block)
#define CONVT_PORTABLE_WEIGHT_TILES(X, type, dtype) \
  X(type##_weight_128, dtype, 128)                  \
  X(type##_weight_64, dtype, 64)
#define CONVT_PORTABLE_WEIGHT_INSTANCES(X)        \
  CONVT_PORTABLE_WEIGHT_TILES(X, f16, kFloat16)   \
  CONVT_PORTABLE_WEIGHT_TILES(X, bf16, kBFloat16) \
  CONVT_PORTABLE_WEIGHT_TILES(X, tf32, kFloat32)

inline constexpr PortableGradWeightInstance kPortableGradWeightInstances[] = {
#define CONVT_ROW(symbol, dtype, block) {"portable_" #symbol, DataType::dtype, block},
    CONVT_PORTABLE_WEIGHT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};
inline constexpr int32_t kNumPortableGradWeightInstances = count_of(kPortableGradWeightInstances);

}  // namespace convt

namespace convt::portable {

CONVT_PORTABLE_INSTANCES(CONVT_DECLARE_KERNEL)
CONVT_PORTABLE_WEIGHT_INSTANCES(CONVT_DECLARE_KERNEL)

// What packs weights of a dtype for them.
const void* pack_weights(DataType dtype);

}  // namespace convt::portable
