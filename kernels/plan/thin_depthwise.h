// The gradients of a depthwise layer (one channel a group on both sides): which pixels a warp owns. One definition for
// the planner, launch/ and the kernels (thin/depthwise.cuh).
//
// A warp walks down `rows` rows of the input in one strip of columns of one image and channel, and the rows of
// grad_output that the taps read slide past it. Neighbouring lanes take neighbouring columns of the strip: each lane as
// many as make four columns of grad_output.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "plan/thin_instances.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

inline constexpr int32_t kDepthwiseColumns = 4;  // of grad_output that a lane loads
inline constexpr int32_t kDepthwiseThreads = 128;  // of a CTA: warps know nothing of each other

struct ThinDepthwiseLayout {
  Axis h;
  Axis w;
  int32_t channels;
  int32_t rows;  // of the input, of a warp
  int32_t chunks;  // warps along H
  int32_t strips;  // warps along W
  int64_t num_warps;  // strips, then chunks, then channels, then images
  int64_t num_blocks;
};

// False where a kernel of that instance does not compute the problem, or 32 bits do not hold its numbers.
bool make_thin_depthwise_layout(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, int32_t rows,
                                ThinDepthwiseLayout* layout);

}  // namespace convt
