// Depthwise layers (one channel a group on both sides): what a warp owns. One definition for the planner, launch/ and
// the kernels (depthwise/forward.cuh, depthwise/gradients.cuh).
//
// A warp walks down `rows` rows in one strip of columns of one image and channel: rows of positions in the forward
// pass, of the input in the gradients. The rows that the taps read slide past it. Neighbouring lanes take neighbouring
// columns of the strip, each as many as make one vector of y or grad_output.
#pragma once

#include <cstdint>

#include "depthwise/instances.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The rows of a warp for a depthwise layer, in any direction.
struct ThinDepthwiseTile {
  int32_t instance;  // index into kThinDepthwiseInstances
  int32_t rows;      // of positions
  int32_t columns;   // of positions: follows from the instance

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("rows", rows);
    field("columns", columns);
  }
};

// Columns of y that a lane stores, 16 bytes, or of grad_output that it loads: as many vectors as pay for what a row
// costs.
constexpr int32_t depthwise_columns(DataType dtype, Direction direction) {
  return dtype == DataType::kFloat32 && direction == Direction::kForward ? 4 : 8;
}

inline constexpr int32_t kDepthwiseThreads = 128;  // of a CTA: warps know nothing of each other

struct ThinDepthwiseLayout {
  Axis h;
  Axis w;
  int32_t channels;
  int32_t first_row;  // of the input, or in the forward pass rows of positions, counted from the padded output's edge
  int32_t num_rows;
  int32_t rows;  // of a warp
  int32_t chunks;  // warps along H
  int32_t strips;  // warps along W
  int64_t num_warps;  // strips, then chunks, then channels, then images
  int64_t num_blocks;
};

// False where a kernel of that instance does not compute the problem, or 32 bits do not hold its numbers.
bool make_thin_depthwise_layout(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, int32_t rows,
                                ThinDepthwiseLayout* layout);

}  // namespace convt

namespace convt::depthwise {

// What a kernel is launched with. Filled by depthwise/launch.cpp, constant for the whole grid.
struct DepthwiseParams : ThinDepthwiseLayout {
  void* y;  // [batch, channels, h.out, w.out]: the result of the forward pass, else grad_output
  void* x;  // [batch, channels, h.in, w.in]: the result of the gradient of the input, else an operand
  const void* weight;  // [channels, 1, h.kernel, w.kernel]: not of the gradient of the weight
  const void* bias;  // [channels] or null: of the forward pass
  float* slabs;  // [batch * chunks * strips][channels, h.kernel, w.kernel]: of the gradient of the weight
  int64_t y_stride[4];
  int64_t x_stride[4];
  int64_t weight_stride[4];
  bool y_vectors;  // a lane's columns of y are one vector, wherever it begins
  bool x_vectors;
};

}  // namespace convt::depthwise
