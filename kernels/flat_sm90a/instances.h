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

// X(symbol, dtype, precision, phases, consumers, accumulators)
#define CONVT_FLAT_SHAPES(X, type, dtype, precision) \
  X(type##_1x2, dtype, precision, 1, 2, 256)         \
  X(type##_1xhalf, dtype, precision, 1, 1, 128)      \
  X(type##_2x1, dtype, precision, 2, 1, 256)         \
  X(type##_2x2, dtype, precision, 2, 2, 256)         \
  X(type##_2xhalf, dtype, precision, 2, 1, 128)      \
  X(type##_4x2, dtype, precision, 4, 2, 256)         \
  X(type##_4xhalf, dtype, precision, 4, 1, 128)
#define CONVT_FLAT_INSTANCES(X)                \
  CONVT_FLAT_SHAPES(X, tf32, kFloat32, kTf32)  \
  CONVT_FLAT_SHAPES(X, bf16, kBFloat16, kHalf) \
  CONVT_FLAT_SHAPES(X, f16, kFloat16, kHalf)

inline constexpr FlatInstance kFlatInstances[] = {
#define CONVT_ROW(symbol, dtype, precision, phases, consumers, accumulators) \
  {"flat_" #symbol, DataType::dtype, Precision::precision, phases, consumers, accumulators},
    CONVT_FLAT_INSTANCES(CONVT_ROW)
#undef CONVT_ROW
};

inline constexpr int32_t kNumFlatInstances = count_of(kFlatInstances);

}  // namespace convt

namespace convt::flat_sm90a {

CONVT_FLAT_INSTANCES(CONVT_DECLARE_KERNEL)

// Packs both operands.
const void* pack_operands(DataType dtype);

}  // namespace convt::flat_sm90a
