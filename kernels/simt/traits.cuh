// Compile-time description of one SIMT kernel instance.
#pragma once

#include <type_traits>

#include "element/arithmetic.cuh"
#include "problem/problem.h"

namespace convt::simt {

inline constexpr int kMaxThreads = 256;

using element::add;
using element::ElementOf;
using element::fused_multiply_add;
using element::to_accumulator;
using element::to_element;

template <DataType kDataType, Precision kPrecision, Direction kDirection, int kThreadCoValue, int kQuadsValue>
struct Traits {
  using Element = typename ElementOf<kDataType>::type;                                        // in memory
  using Accumulator = std::conditional_t<kDataType == DataType::kFloat64, double, float>;     // in registers
  static constexpr bool kTapSums = kPrecision == Precision::kAten;  // a separate sum for every tap
  static constexpr bool kAscending = kDirection == Direction::kGradInput;  // a later tap reads a higher coordinate
  static constexpr int kThreadCo = kThreadCoValue;                  // output channels of a thread
  static constexpr int kQuads = kQuadsValue;                        // runs of 4 positions of a thread
  // Two CTAs share an SM, so that one computes while the other waits for memory or stores.
  static constexpr int kMinBlocks = sizeof(Accumulator) == 8 ? 1 : 2;
};

}  // namespace convt::simt
