// Layers of few outputs or few channels as a matrix product whose source operand is gathered: which results a CTA owns,
// and where its data lie in shared memory. One definition for the planner, launch/ and the kernel
// (streamed/gather.cuh), for the forward pass and, as its adjoint problem, the gradient of the input.
//
// The positions of one phase, of all images, are one sequence; a tile is block_positions of it and block_channels
// result channels of a group. A stage brings the terms of chunk_ci channels and chunk_taps taps: for each a row of the
// tile's positions and a row of its channels.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "streamed/tiled_layout.h"

namespace convt {

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

}  // namespace convt
