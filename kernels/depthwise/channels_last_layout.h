// Depthwise layers (one channel per group on both sides) in channels_last: the work of a CTA. The planner, launch/ and
// the kernels (depthwise/channels_last.cuh) share this definition.
//
// A thread processes `vector` neighbouring channels of a few neighbouring columns of positions, and `rows` rows of them
// from top to bottom. Neighbouring threads process neighbouring channels (`lanes` threads), then the next columns.
// Positions are elements of the input in the gradients. In the forward pass they are counted from the padded output's
// edge, and a thread computes all phases of its positions. In the gradient of the weight, a CTA writes a slab of its
// channels. Its rows and columns then depend only on the problem, so the result has the same bits on every GPU.
#pragma once

#include <cstdint>
#include <numeric>

#include "depthwise/instances.h"
#include "plan/tile.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// Tile of a depthwise layer in channels_last: the positions and channels of a CTA.
struct ThinChannelsLastTile {
  int32_t instance;  // index into kThinChannelsLastInstances
  int32_t rows;  // rows of positions
  int32_t vector;  // channels per thread; launch/ uses 1 if the operands are misaligned
  int32_t channels;  // per CTA; channels and columns follow from the problem and `vector`
  int32_t columns;

  CONVT_TILE_FIELDS(rows, columns, channels, vector)
};

inline constexpr int32_t kChannelsLastThreads = 256;
inline constexpr int32_t kChannelsLastBlocksPerSm = 2;  // limited by registers

// Position rows of the forward pass after which a row of x is in the same registers again.
constexpr int32_t channels_last_forward_group(int32_t kernel, int32_t stride, int32_t rows_ahead) {
  return (kernel + stride - 1) / stride - 1 + rows_ahead;
}

// Pixel rows per iteration of the gradient of the weight. With `rows_ahead` rows of grad_output in flight, every row is
// in the same registers again after that many.
constexpr int32_t channels_last_group(int32_t kernel, int32_t stride, int32_t rows_ahead) {
  const int32_t ahead = rows_ahead / stride, taps = (kernel + stride - 1) / stride;
  return std::lcm(taps + ahead, ahead);
}

// Range of positions of one axis.
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
  int32_t columns;  // per CTA, each with the instance's `positions`
  int32_t column_blocks;
  int32_t rows;  // per CTA
  int32_t chunks;
  int32_t shared_bytes;  // weights as float32; in the gradient of the weight, the accumulators of all threads
  int64_t num_blocks;  // order: columns, then channels, then chunks of rows, then images
};

// Channels per vector of a thread: the instance's, or 1 if they do not divide the layer's.
int32_t channels_last_vector(const ConvTProblem& problem, const ThinChannelsLastInstance& instance);

// Returns false if the instance does not support the problem or the numbers exceed 32 bits.
bool make_thin_channels_last_layout(const ConvTProblem& problem, const ThinChannelsLastInstance& instance, int32_t rows,
                                    int32_t vector, ThinChannelsLastLayout* layout);

}  // namespace convt

namespace convt::depthwise {

// Kernel parameters. depthwise/launch.cpp fills them; they are constant for the whole grid.
struct ChannelsLastParams : ThinChannelsLastLayout {
  const void* source;  // x, or grad_output in the gradients: [batch, channels, h, w], any strides
  const void* weight;  // [channels, 1, h.kernel, w.kernel], any strides; unused in the gradient of the weight
  const void* bias;  // [channels] or null; forward only
  void* result;  // y, or the gradient of x: [batch, channels, h, w], channels_last
  int64_t source_stride[4];
  int64_t weight_stride[4];
  int64_t result_stride[4];
  // Gradient of the weight only.
  const void* pixels;  // x: [batch, channels, h.in, w.in], any strides
  int64_t pixel_stride[4];
  float* slabs;  // [batch * chunks * column_blocks][channels, h.kernel, w.kernel]
};

}  // namespace convt::depthwise
