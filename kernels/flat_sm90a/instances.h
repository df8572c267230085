// The kernel instances of the flat engine: the one list that dispatch (flat_sm90a/launch.cpp), planning and tests read.
#pragma once

#include <cstdint>

#include "plan/kernel_table.h"
#include "problem/problem.h"

namespace convt {

// A kernel of the flat engine: W phases of a tile, and warpgroups that multiply. Two of them share a CTA that has the
// SM for itself; one is a CTA of which an SM holds two, so that one multiplies while the other stores; "half" has half
// of the accumulators, for problems of few tiles.
struct FlatInstance {
  const char* name;
  DataType dtype;
  Precision precision;
  int32_t phases;
  int32_t consumers;
  int32_t accumulators;  // of a warpgroup for each channel: positions times W phases
};

// X(symbol, dtype, precision, phases, consumers, accumulators): what a file of instances/ has.
#define CONVT_FLAT_TF32(X)                   \
  X(tf32_1x2, kFloat32, kTf32, 1, 2, 256)    \
  X(tf32_1xhalf, kFloat32, kTf32, 1, 1, 128) \
  X(tf32_2x1, kFloat32, kTf32, 2, 1, 256)    \
  X(tf32_2x2, kFloat32, kTf32, 2, 2, 256)    \
  X(tf32_2xhalf, kFloat32, kTf32, 2, 1, 128) \
  X(tf32_4x2, kFloat32, kTf32, 4, 2, 256)    \
  X(tf32_4xhalf, kFloat32, kTf32, 4, 1, 128)
#define CONVT_FLAT_HALF(X)                    \
  X(bf16_1x2, kBFloat16, kHalf, 1, 2, 256)    \
  X(bf16_1xhalf, kBFloat16, kHalf, 1, 1, 128) \
  X(bf16_2x1, kBFloat16, kHalf, 2, 1, 256)    \
  X(bf16_2x2, kBFloat16, kHalf, 2, 2, 256)    \
  X(bf16_2xhalf, kBFloat16, kHalf, 2, 1, 128) \
  X(bf16_4x2, kBFloat16, kHalf, 4, 2, 256)    \
  X(bf16_4xhalf, kBFloat16, kHalf, 4, 1, 128) \
  X(f16_1x2, kFloat16, kHalf, 1, 2, 256)      \
  X(f16_1xhalf, kFloat16, kHalf, 1, 1, 128)   \
  X(f16_2x1, kFloat16, kHalf, 2, 1, 256)      \
  X(f16_2x2, kFloat16, kHalf, 2, 2, 256)      \
  X(f16_2xhalf, kFloat16, kHalf, 2, 1, 128)   \
  X(f16_4x2, kFloat16, kHalf, 4, 2, 256)      \
  X(f16_4xhalf, kFloat16, kHalf, 4, 1, 128)
#define CONVT_FLAT_INSTANCES(X) CONVT_FLAT_TF32(X) CONVT_FLAT_HALF(X)

inline constexpr FlatInstance kFlatInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, phases, consumers, accumulators) \
  {"flat_" #symbol, DataType::dtype, Precision::precision, phases, consumers, accumulators},
    CONVT_FLAT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumFlatInstances = count_of(kFlatInstances);

}  // namespace convt

namespace convt::flat_sm90a {

CONVT_FLAT_INSTANCES(CONVT_DECLARE_PACKED_KERNEL)

}  // namespace convt::flat_sm90a
