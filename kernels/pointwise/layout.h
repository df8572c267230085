// 1 x 1 layers without stride, padding or groups: what a thread computes.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "pointwise/instances.h"
#include "problem/problem.h"

namespace convt {

struct PointwiseTile {
  int32_t instance;  // index into kPointwiseInstances

  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("instance", instance);
  }
};

inline constexpr int32_t kPointwiseThreads = 128;

struct PointwiseLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int64_t weight_stride[2];  // from an input channel to the next, and an output channel
  int32_t channels;          // that are summed
  int32_t results;
  Divisor by_columns, by_rows, by_channels;  // a result's number: image, channel, row, column
  int64_t num_blocks;
};

// False where the problem is another.
bool make_pointwise_layout(const ConvTProblem& problem, PointwiseLayout* layout);

}  // namespace convt

namespace convt::pointwise {

// What the kernel is launched with. Filled by pointwise/launch.cpp.
struct Params : PointwiseLayout {
  const float* source;
  const float* weight;
  const float* bias;  // or null
  float* result;
};

}  // namespace convt::pointwise
