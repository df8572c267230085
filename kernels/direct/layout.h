// Small layers, straight from global memory: what a thread, or for the gradient of the weight a CTA, computes. One
// definition for the planner, the launcher and the kernels (direct/kernel.cuh).
#pragma once

#include <cstdint>

#include "direct/instances.h"
#include "plan/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "tiling/terms.h"

namespace convt {

struct ThinDirectTile {
  int32_t instance;  // index into kThinDirectInstances
  int32_t terms;     // of a thread's sum, at most

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("terms", terms);
  }
};

inline constexpr int32_t kDirectThreads = 128;
inline constexpr int32_t kDirectBatch = 8;  // terms of a sum that are read at once

// The forward pass and, as its adjoint problem, the gradient of the input: a thread computes one result. False where
// there are too many phases or 32 bits do not hold the numbers.
bool make_thin_direct_layout(const ConvTProblem& problem, TermsLayout* layout);

inline constexpr int32_t kMostDirectWeightThreads = 512;  // of a CTA
inline constexpr int32_t kDirectWeightTaps = 4;  // neighbours in a row, which a CTA adds up
inline constexpr int32_t kDirectWeightBatch = 4;  // pixels that a thread reads at once

// The gradient of the weight: a CTA adds up the pixels for a few neighbouring taps.
struct ThinDirectWeightLayout {
  Axis h, w;
  // Elements from one image, channel, row, column to the next.
  int32_t x_stride[4];
  int32_t gy_stride[4];
  int64_t weight_stride[4];  // from one input channel, output channel of the group, kh, kw to the next
  int32_t group_ci;
  int32_t pixels;  // of the input, all images
  // A CTA's number is (input channel, output channel of the group, tap row, run of taps), the last one fastest.
  FastDivmod by_runs, by_kernel_h, by_group_co, by_group_ci;
  FastDivmod by_columns, by_rows;  // a pixel's number: image, row, column
  int64_t num_blocks;
};

// False where 32 bits do not hold the numbers.
bool make_thin_direct_weight_layout(const ConvTProblem& problem, ThinDirectWeightLayout* layout);

}  // namespace convt

namespace convt::direct {

// What the kernels are launched with. Filled by direct/launch.cpp, constant for the whole grid.
struct DirectParams : TermsLayout {
  const void* source;  // any strides
  const void* weight;  // any strides
  const void* bias;  // contiguous, or null
  void* result;
};

struct DirectWeightParams : ThinDirectWeightLayout {
  const void* x;  // any strides
  const void* gy;  // any strides
  void* weight;
};

}  // namespace convt::direct
