// Depthwise layers (one channel a group on both sides) in channels_last: what a CTA owns. One definition for the
// planner, launch/ and the kernels (depthwise/channels_last.cuh).
//
// A thread has `vector` neighbouring channels in a few neighbouring columns of positions, and walks down `rows` rows of
// them. Neighbouring threads take neighbouring channels: `lanes` of them, then the next columns. Positions are elements
// of the input in the gradients; in the forward pass they are counted from the padded output's edge, and a thread
// computes all phases of its own. For the gradient of the weight a CTA writes a slab of its channels, and its rows and
// columns are functions of the problem alone, so that the result has the same bits on every GPU.
#pragma once

#include <cstdint>
#include <numeric>

#include "depthwise/instances.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The rows of a CTA for a depthwise layer in channels_last.
struct ThinChannelsLastTile {
  int32_t instance;  // index into kThinChannelsLastInstances
  int32_t rows;  // of positions
  int32_t vector;  // channels of a thread; where operands do not allow it, launch/ takes 1
  int32_t channels;  // of a CTA: follows from the problem and `vector`, as do its columns of positions
  int32_t columns;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("rows", rows);
    field("columns", columns);
    field("channels", channels);
    field("vector", vector);
  }
};

inline constexpr int32_t kChannelsLastThreads = 256;
inline constexpr int32_t kChannelsLastBlocksPerSm = 2;  // what its registers allow

// Rows of positions of the forward pass after which every row of x has its first registers again.
constexpr int32_t channels_last_forward_group(int32_t kernel, int32_t stride, int32_t rows_ahead) {
  return (kernel + stride - 1) / stride - 1 + rows_ahead;
}

// Rows of pixels that a thread of the gradient of the weight multiplies in one go: with `rows_ahead` rows of
// grad_output on their way, every row has its first registers again after that many.
constexpr int32_t channels_last_group(int32_t kernel, int32_t stride, int32_t rows_ahead) {
  const int32_t ahead = rows_ahead / stride, taps = (kernel + stride - 1) / stride;
  return std::lcm(taps + ahead, ahead);
}

// Positions of one axis.
struct PositionRange {
  int32_t first;
  int32_t count;
};

struct ThinChannelsLastLayout {
  Axis h;
  Axis w;
  PositionRange positions_h;
  PositionRange positions_w;
  int32_t channels;
  int32_t vector;
  int32_t lanes;  // threads along the channels of a CTA
  int32_t channel_blocks;  // CTAs along the channels
  int32_t columns;  // of a CTA, each of `positions` of the instance
  int32_t column_blocks;
  int32_t rows;  // of a CTA
  int32_t chunks;
  int32_t shared_bytes;  // the weights as float32; of their gradient every thread's sums
  int64_t num_blocks;  // columns, then channels, then chunks of rows, then images
};

// Channels that a thread can have as one vector: the instance's, or 1 where they do not divide the layer's.
int32_t channels_last_vector(const ConvTProblem& problem, const ThinChannelsLastInstance& instance);

// False where a kernel of that instance does not compute the problem, or 32 bits do not hold its numbers.
bool make_thin_channels_last_layout(const ConvTProblem& problem, const ThinChannelsLastInstance& instance, int32_t rows,
                                    int32_t vector, ThinChannelsLastLayout* layout);

}  // namespace convt

namespace convt::depthwise {

// What a kernel is launched with. Filled by depthwise/launch.cpp, constant for the whole grid.
struct ChannelsLastParams : ThinChannelsLastLayout {
  const void* source;  // x, or in the gradients grad_output: [batch, channels, h, w], any strides
  const void* weight;  // [channels, 1, h.kernel, w.kernel], any strides: not of the gradient of the weight
  const void* bias;  // [channels] or null: of the forward pass
  void* result;  // y, or the gradient of x: [batch, channels, h, w], channels_last
  int64_t source_stride[4];
  int64_t weight_stride[4];
  int64_t result_stride[4];
  // Of the gradient of the weight alone.
  const void* pixels;  // x: [batch, channels, h.in, w.in], any strides
  int64_t pixel_stride[4];
  float* slabs;  // [batch * chunks * column_blocks][channels, h.kernel, w.kernel]
};

}  // namespace convt::depthwise
