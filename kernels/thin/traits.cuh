// One thin instance at compile time.
#pragma once

#include "element/arithmetic.cuh"

namespace convt::thin {

inline constexpr int kMaxThreads = 256;

template <DataType kDataType, int kOutputsValue, int kPositionsValue>
struct Traits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kOutputs = kOutputsValue;      // virtual outputs of a thread, a multiple of 4
  static constexpr int kQuads = kOutputs / 4;
  static constexpr int kPositions = kPositionsValue;  // positions of a thread, 32 apart
  static constexpr int kMinBlocks = kPositions * kOutputs > 64                     ? 1
                                    : kPositions * kOutputs > 32 || kPositions > 4 ? 2
                                                                                   : 3;
};

}  // namespace convt::thin
