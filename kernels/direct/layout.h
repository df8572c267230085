// Small layers, computed straight from global memory: the work of a thread or, in the gradient of the weight, of a CTA.
// The planner, the launcher and the kernels (direct/kernel.cuh) share this definition.
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
  int32_t terms;  // maximum terms per result

  // Visits the tile's parameters, for plan comparison and JSON.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("terms", terms);
  }
};

inline constexpr int32_t kDirectThreads = 128;
inline constexpr int32_t kDirectBatch = 8;  // terms of a sum that are read at once

// Forward pass, and gradient of the input as its adjoint problem: a thread computes one result. Returns false if there
// are too many phases or the numbers exceed 32 bits.
bool make_thin_direct_layout(const ConvTProblem& problem, TermsLayout* layout);

inline constexpr int32_t kMostDirectWeightThreads = 512;  // per CTA
inline constexpr int32_t kDirectWeightTaps = 4;  // neighbouring taps of a row per CTA
inline constexpr int32_t kDirectWeightBatch = 4;  // pixels that a thread reads at once

// Gradient of the weight: a CTA accumulates a few neighbouring taps over all pixels.
struct ThinDirectWeightLayout {
  Axis h, w;
  // Strides of image, channel, row, column.
  int32_t x_stride[4];
  int32_t gy_stride[4];
  int64_t weight_stride[4];  // strides of input channel, output channel of the group, kh, kw
  int32_t group_ci;
  int32_t pixels;  // input pixels of all images
  // CTA index: (input channel, output channel of the group, tap row, run of taps), the last one fastest.
  FastDivmod by_runs, by_kernel_h, by_group_co, by_group_ci;
  FastDivmod by_columns, by_rows;  // pixel index: image, row, column
  int64_t num_blocks;
};

// Returns false if the numbers exceed 32 bits.
bool make_thin_direct_weight_layout(const ConvTProblem& problem, ThinDirectWeightLayout* layout);

}  // namespace convt

namespace convt::direct {

// Kernel parameters. direct/launch.cpp fills them; they are constant for the whole grid.
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
