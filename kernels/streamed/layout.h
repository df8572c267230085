// Layers of few channels as a product of positions and channels, forward and, as its adjoint problem, the gradient of
// the input: which results a CTA owns, and where its data lie in shared memory. One definition for the planner, the
// launchers and the kernels.
//
// The positions of one phase, of all images, are one sequence. A CTA has a tile of block_positions of it by
// block_channels result channels of a group. Of the two families, gathered terms (streamed/gather.cuh) bring the source
// and the weight of chunk_ci channels and chunk_taps taps to a stage in shared memory: for each term a row of the
// tile's positions and a row of its channels. Streamed sources (streamed/kernel.cuh) go straight from global memory to
// the registers of the threads that multiply them: a warp owns 32 neighbouring positions for each position of a thread,
// and a thread's channels, and the CTA keeps the weights of its channels for all terms of their sums.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "tiling/terms.h"

namespace convt {

// What both families know of their tiles.
struct ThinTiledLayout : TermsLayout {
  int32_t group_co;
  int32_t result_rows, result_columns;
  int32_t num_positions;  // of a phase, the most; of all images
  FastDivmod by_columns, by_rows;  // of the positions of an image
  FastDivmod by_channel_tiles, by_phases, by_position_tiles;  // a CTA's index: channel tiles are its fastest digit
  int32_t block_positions;
  int32_t block_channels;
};

// False where 32 bits do not hold the numbers.
bool make_thin_tiled_layout(const ConvTProblem& problem, int32_t block_positions, int32_t block_channels,
                            ThinTiledLayout* layout);

// The tile of gathered terms.
struct ThinGatherTile {
  int32_t instance;  // index into kThinGatherInstances
  int32_t lanes_channels;  // of a warp; the others go along positions
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t chunk_ci;  // terms of a stage
  int32_t chunk_taps;
  int32_t stages;  // pipeline depth

  // What tells it from other tiles of the kernel, and what people are told of it.
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

// CTAs of kMaxGatherThreads threads that share an SM: its registers divided by those of a thread.
CONVT_HOST_DEVICE constexpr int32_t min_gather_blocks(int32_t sums) { return sums > 32 ? 2 : sums > 8 ? 3 : 4; }

struct ThinGatherLayout : ThinTiledLayout {
  int32_t lanes_channels;  // of a warp: that many lanes along channels, the others along positions
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t chunk_ci;
  int32_t chunk_taps;
  int32_t stages;
  int32_t load_lanes_log2;  // neighbouring threads that copy neighbouring channels of the source
  bool by_channels;  // neighbouring terms are channels of a tap, of which chunk_ci is a power of two; else taps

  // Shared memory: positions' places in source and result, 32-bit words of bits for each tap, terms of chunk_ci
  // channels and all taps, stages. Pitches in elements.
  int32_t table_positions;  // block_positions in whole words of bits
  int32_t source_pitch;  // from a channel to the next; taps are block_positions apart
  int32_t weight_pitch;  // from a tap to the next
  int32_t weight_channel_pitch;
  int32_t bits_begin;  // bytes
  int32_t terms_begin;
  int32_t stage_begin;
  int32_t stage_weight;  // bytes from the stage's begin
  int32_t stage_bytes;
  int32_t threads;
  int32_t shared_bytes;
};

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_gather_layout(const ConvTProblem& problem, const ThinGatherTile& plan, ThinGatherLayout* layout);

// The tile of streamed sources.
struct ThinStreamedTile {
  int32_t instance;  // index into kThinStreamedInstances
  int32_t warps_channels;
  int32_t warps_positions;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("warps_channels", warps_channels);
    field("warps_positions", warps_positions);
  }
};

inline constexpr int32_t kMaxStreamedThreads = 256;
inline constexpr int32_t kMostStreamedTaps = 32;  // of an axis: bits of a word say which a position has
inline constexpr int32_t kStreamedPadding = 16;  // of the list of terms, so that batches of it are always whole
inline constexpr int32_t kStreamedVector = 4;  // channels that are read at once where they are neighbours

// CTAs of kMaxStreamedThreads threads that share an SM: its registers divided by those of a thread.
CONVT_HOST_DEVICE constexpr int32_t min_streamed_blocks(int32_t sums, int32_t taps) {
  return sums > 16 || taps > 0 ? 2 : sums > 8 ? 3 : 4;
}

struct ThinStreamedLayout : ThinTiledLayout {
  int32_t warps_channels;
  int32_t warps_positions;
  int32_t weight_pitch;  // elements from a term's weights to the next one's
  int32_t weights_begin;  // bytes; the list of terms is before them
  int32_t threads;
  int32_t shared_bytes;
};

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_streamed_layout(const ConvTProblem& problem, const ThinStreamedTile& plan, ThinStreamedLayout* layout);

}  // namespace convt

namespace convt::streamed {

// What a kernel is launched with. Filled by streamed/launch.cpp, constant for the whole grid.
template <typename Layout>
struct TiledParams : Layout {
  const float* source;  // any strides; of vectors, channels are neighbours and begin on 16 bytes
  const float* weight;  // any strides
  const float* bias;  // contiguous, or null
  float* result;
  bool result_on_vectors;  // begins on 16 bytes
};
using GatherParams = TiledParams<ThinGatherLayout>;
using StreamedParams = TiledParams<ThinStreamedLayout>;

}  // namespace convt::streamed
