// Layers of few channels as a product of positions and channels: forward, and the gradient of the input as its adjoint
// problem. Defines the results of a CTA and its shared-memory layout for the planner, the launchers and the kernels.
//
// The positions of one phase, of all images, form one sequence. A CTA computes a tile of block_positions of it by
// block_channels result channels of a group. Two families share this tile:
// - Gathered terms (streamed/gather.cuh): a stage in shared memory contains the source and the weight of chunk_ci
//   channels and chunk_taps taps. Each term has a row of the tile's positions and a row of its channels.
// - Streamed sources (streamed/kernel.cuh): threads load the source from global memory to registers. A warp owns 32
//   neighbouring positions per position of a thread, and a thread's channels. Shared memory contains the weights of the
//   CTA's channels for all terms.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/terms.h"

namespace convt {

// Tile parameters of both families.
struct ThinTiledLayout : TermsLayout {
  int32_t group_co;
  int32_t result_rows, result_columns;
  int32_t num_positions;  // maximum per phase, over all images
  FastDivmod by_columns, by_rows;  // decompose the positions of an image
  FastDivmod by_channel_tiles, by_phases, by_position_tiles;  // digits of a CTA's index, fastest first
  int32_t block_positions;
  int32_t block_channels;
};

// Returns false if the numbers exceed 32 bits.
bool make_thin_tiled_layout(const ConvTProblem& problem, int32_t block_positions, int32_t block_channels,
                            ThinTiledLayout* layout);

// Tile of gathered terms.
struct ThinGatherTile {
  int32_t instance;  // index into kThinGatherInstances
  int32_t lanes_channels;  // lanes of a warp along channels; the others are along positions
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t chunk_ci;  // terms of a stage
  int32_t chunk_taps;
  int32_t stages;  // pipeline stages

  // Visits the tile's parameters, for plan comparison and JSON.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("lanes_channels", lanes_channels);
    field("warps_channels", warps_channels);
    field("warps_positions", warps_positions);
    field("chunk_ci", chunk_ci);
    field("chunk_taps", chunk_taps);
    field("stages", stages);
  }
};

inline constexpr int32_t kMaxGatherThreads = 256;
inline constexpr int32_t kMostGatherTaps = 256;

// Resident CTAs of kMaxGatherThreads threads per SM: limited by the registers per thread.
CONVT_HOST_DEVICE constexpr int32_t min_gather_blocks(int32_t sums) { return sums > 32 ? 2 : sums > 8 ? 3 : 4; }

struct ThinGatherLayout : ThinTiledLayout {
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

// Tile of streamed sources.
struct ThinStreamedTile {
  int32_t instance;  // index into kThinStreamedInstances
  int32_t warps_channels;
  int32_t warps_positions;

  // Visits the tile's parameters, for plan comparison and JSON.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("warps_channels", warps_channels);
    field("warps_positions", warps_positions);
  }
};

inline constexpr int32_t kMaxStreamedThreads = 256;
inline constexpr int32_t kMostStreamedTaps = 32;  // per axis: bits of a word mark a position's existing taps
inline constexpr int32_t kStreamedPadding = 16;  // padding of the list of terms: batches are always whole
inline constexpr int32_t kStreamedVector = 4;  // channels read at once if they are contiguous

// Resident CTAs of kMaxStreamedThreads threads per SM: limited by the registers per thread.
CONVT_HOST_DEVICE constexpr int32_t min_streamed_blocks(int32_t sums, int32_t taps) {
  return sums > 16 || taps > 0 ? 2 : sums > 8 ? 3 : 4;
}

struct ThinStreamedLayout : ThinTiledLayout {
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t weight_pitch;  // stride between the weights of consecutive terms, in elements
  int32_t weights_begin;  // byte offset; the list of terms precedes the weights
  int32_t threads;
  int32_t shared_bytes;
};

// Returns false if the plan is illegal for the problem or exceeds 32 bits.
bool make_thin_streamed_layout(const ConvTProblem& problem, const ThinStreamedTile& plan, ThinStreamedLayout* layout);

}  // namespace convt

namespace convt::streamed {

// Kernel parameters. streamed/launch.cpp fills them; they are constant for the whole grid.
template <typename Layout>
struct TiledParams : Layout {
  const float* source;  // any strides; for vectors, channels are contiguous and 16-byte aligned
  const float* weight;  // any strides
  const float* bias;  // contiguous, or null
  float* result;
  bool result_on_vectors;  // the result is 16-byte aligned
};
using GatherParams = TiledParams<ThinGatherLayout>;
using StreamedParams = TiledParams<ThinStreamedLayout>;

}  // namespace convt::streamed
