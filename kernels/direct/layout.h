// Small layers: a thread computes a result straight from global memory. One definition for the planner, launch/ and the
// kernel (direct/kernel.cuh), for the forward pass and, as its adjoint problem, the gradient of the input.
#pragma once

#include <cstdint>

#include "direct/instances.h"
#include "plan/divisor.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The kernel of small layers: direct/layout.h and, of the weight, direct/weight_layout.h.
struct ThinDirectTile {
  int32_t instance;  // index into kThinDirectInstances
  int32_t terms;  // of a thread's sum, at most;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("terms", terms);
  }
};

inline constexpr int32_t kDirectThreads = 128;
inline constexpr int32_t kDirectBatch = 8;  // terms of a sum that are read at once
inline constexpr int32_t kMostDirectPhases = 8;  // of an axis

struct ThinDirectLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int32_t weight_stride[4];  // from one summed channel, result channel, kh, kw to the next
  int64_t weight_group_stride;
  Phase phases_h[kMostDirectPhases];
  Phase phases_w[kMostDirectPhases];
  int32_t rows, columns;  // of the source
  int32_t row_step, column_step;  // of it, from a position to the next
  int32_t group_ci;  // channels that are summed
  int32_t terms;  // of a result, at most
  int32_t results;
  bool channels_last;  // of the result; its channels, otherwise its columns, are the fastest digit of a result's number
  Divisor by_digits[3];
  Divisor by_phases_h, by_phases_w, by_group_co;
  int64_t num_blocks;
};

// False where there are too many phases or 32 bits do not hold the numbers.
bool make_thin_direct_layout(const ConvTProblem& problem, ThinDirectLayout* layout);

}  // namespace convt
