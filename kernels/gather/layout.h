// Kernels whose terms are gathered from global memory: the work of a thread or a CTA, and the layout of shared memory.
// The planner, the launchers and the kernels share these definitions.
#pragma once

#include <cstdint>

#include "gather/instances.h"
#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

inline constexpr int32_t kMaxTermPhases = 8;  // per axis

// The forward pass and, as its adjoint problem, the gradient of the input.
struct TermsLayout {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int32_t weight_stride[4];  // strides of summed channel, result channel, kh, kw
  int64_t weight_group_stride;
  Phase phases_h[kMaxTermPhases];
  Phase phases_w[kMaxTermPhases];
  int32_t rows, columns;  // of the source
  int32_t row_step, column_step;  // source coordinates per position
  int32_t group_ci;  // summed channels
  int32_t terms;  // per result, at most
  int32_t results;
  bool channels_last;  // channels (otherwise columns) are the fastest digit of a result's index
  FastDivmod by_digits[3];
  FastDivmod by_phases_h, by_phases_w, by_group_co;
  int64_t num_blocks;  // set by each engine
};

// Sets everything except num_blocks. Returns false if there are too many phases, or if 32 bits cannot represent the
// values.
bool make_terms_layout(const ConvTProblem& problem, TermsLayout* layout);

// thin_gather: a product of positions and channels. The positions of one phase, of all images, form one sequence. A CTA
// computes a tile of block_positions of it by block_channels result channels of a group. A stage in shared memory
// contains the source and the weight of chunk_ci channels and chunk_taps taps. Each term has a row of the tile's
// positions and a row of its channels.
struct ThinGatherTile {
  int32_t instance;  // index into kThinGatherInstances
  int32_t lanes_channels;  // lanes of a warp along channels; the others are along positions
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t chunk_ci;  // terms of a stage
  int32_t chunk_taps;
  int32_t stages;  // pipeline stages

  CONVT_TILE_FIELDS(lanes_channels, warps_channels, warps_positions, chunk_ci, chunk_taps, stages)
};

inline constexpr int32_t kMaxGatherThreads = 256;
inline constexpr int32_t kMostGatherTaps = 256;

// Resident CTAs of kMaxGatherThreads threads per SM: limited by the registers per thread.
CONVT_HOST_DEVICE constexpr int32_t min_gather_blocks(int32_t sums) { return sums > 32 ? 2 : sums > 8 ? 3 : 4; }

struct ThinGatherLayout : TermsLayout {
  int32_t group_co;
  int32_t result_rows, result_columns;
  int32_t num_positions;  // maximum per phase, over all images
  FastDivmod by_columns, by_rows;  // decompose the positions of an image
  FastDivmod by_channel_tiles, by_phases, by_position_tiles;  // digits of a CTA's index, fastest first
  int32_t block_positions;
  int32_t block_channels;
  int32_t lanes_channels;  // lanes of a warp along channels; the others are along positions
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t chunk_ci;
  int32_t chunk_taps;
  int32_t stages;
  int32_t load_lanes_log2;  // log2 of the neighbouring threads that copy neighbouring channels of the source
  bool by_channels;  // order of the terms: channels of a tap (chunk_ci is a power of two), else taps of a channel

  // Shared memory: the positions' offsets in source and result, a bit mask of positions per tap, the terms of chunk_ci
  // channels and all taps, and the stages. Pitches are in elements.
  int32_t table_positions;  // block_positions rounded up to whole mask words
  int32_t source_pitch;  // stride between channels; the stride between taps is block_positions
  int32_t weight_pitch;  // stride between taps
  int32_t weight_channel_pitch;
  int32_t bits_begin;  // byte offset
  int32_t terms_begin;
  int32_t stage_begin;
  int32_t stage_weight;  // byte offset in a stage
  int32_t stage_bytes;
  int32_t threads;
  int32_t shared_bytes;
};

// Returns false if the plan is illegal for the problem or exceeds 32 bits.
bool make_thin_gather_layout(const ConvTProblem& problem, const ThinGatherTile& plan, ThinGatherLayout* layout);

// thin_direct: small layers, without shared memory.
struct ThinDirectTile {
  int32_t instance;  // index into kThinDirectInstances
  int32_t terms;  // maximum terms per result

  CONVT_TILE_FIELDS(terms)
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

namespace convt::gather {

// Kernel parameters. gather/launch.cpp fills them; they are constant for the whole grid.
struct GatherParams : ThinGatherLayout {
  const float* source;  // any strides
  const float* weight;  // any strides
  const float* bias;  // contiguous, or null
  float* result;
  bool result_on_vectors;  // the result is 16-byte aligned
};

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

}  // namespace convt::gather
