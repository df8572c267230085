// Depthwise layers (one channel per group on both sides): the work of a warp. The planner, launch/ and the kernels
// (depthwise/forward.cuh, depthwise/gradients.cuh) share this definition.
//
// A warp processes `rows` rows in one strip of columns of one image and channel, from top to bottom: rows of positions
// in the forward pass, rows of the input in the gradients. The rows that its taps read stream through registers.
// Neighbouring lanes process neighbouring columns of the strip. A lane's columns form one vector of y or grad_output.
#pragma once

#include <cstdint>

#include "depthwise/instances.h"
#include "plan/tile.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// Tile of a depthwise layer, in any direction: the positions of a warp.
struct ThinDepthwiseTile {
  int32_t instance;  // index into kThinDepthwiseInstances
  int32_t rows;      // rows of positions
  int32_t columns;   // columns of positions; follows from the instance

  CONVT_TILE_FIELDS(rows, columns)
};

// Columns of y that a lane stores (16 bytes), or columns of grad_output that it loads: enough vectors to amortize the
// cost per row.
constexpr int32_t depthwise_columns(DataType dtype, Direction direction) {
  return dtype == DataType::kFloat32 && direction == Direction::kForward ? 4 : 8;
}

inline constexpr int32_t kDepthwiseThreads = 128;  // per CTA; warps are independent

struct ThinDepthwiseLayout {
  Axis h;
  Axis w;
  int32_t channels;
  int32_t first_row;  // of the input; forward: of positions, counted from the padded output's edge
  int32_t num_rows;
  int32_t rows;  // per warp
  int32_t chunks;  // warps along H
  int32_t strips;  // warps along W
  int64_t num_warps;  // order: strips, then chunks, then channels, then images
  int64_t num_blocks;
};

// Returns false if the instance does not support the problem or the numbers exceed 32 bits.
bool make_thin_depthwise_layout(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, int32_t rows,
                                ThinDepthwiseLayout* layout);

}  // namespace convt

namespace convt::depthwise {

// Kernel parameters. depthwise/launch.cpp fills them; they are constant for the whole grid.
struct DepthwiseParams : ThinDepthwiseLayout {
  void* y;  // [batch, channels, h.out, w.out]: result (forward) or grad_output
  void* x;  // [batch, channels, h.in, w.in]: result (gradient of the input) or operand
  const void* weight;  // [channels, 1, h.kernel, w.kernel]; unused in the gradient of the weight
  const void* bias;  // [channels] or null; forward only
  float* slabs;  // [batch * chunks * strips][channels, h.kernel, w.kernel]; gradient of the weight only
  int64_t y_stride[4];
  int64_t x_stride[4];
  int64_t weight_stride[4];
  bool y_vectors;  // a lane's columns of y form one aligned vector
  bool x_vectors;
};

}  // namespace convt::depthwise
