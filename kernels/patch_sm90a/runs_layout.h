// How the patch engine's kernel for runs of grad_output (patch_sm90a/runs.cuh) divides a problem and lies in shared
// memory: gradients of the input in NCHW of small layers whose kernel is their stride.
//
// In memory the weights of a channel of the result are one row of K = (channel of the source, tap), as products want
// their second operand; and what some neighbouring rows of positions have of a channel of grad_output is one *run*. A
// tile is such rows of positions of all images, one after the other, times channels of the result. A stage is 128
// bytes of K: of the weights' rows, by tensor map, and the runs of as many channels of the source. Called by:
// patch_sm90a/runs_plan.cpp, patch_sm90a/runs_launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "problem/problem.h"

namespace convt {

// The tile of runs of grad_output, of which a position has its patch.
struct PatchRunsTile {
  int32_t instance;  // index into kPatchRunsInstances
  int32_t channels;  // of the result, of a CTA;
  int32_t rows;      // of positions, of a CTA
  int32_t splits;     // CTAs that share a tile, each a part of its stages
  int32_t slots;     // stages in shared memory

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("channels", channels);
    field("rows", rows);
    field("splits", splits);
    field("slots", slots);
  }
};

inline constexpr int32_t kRunsPositions = 128;  // of a tile, at most: of two warpgroups
inline constexpr int32_t kRunsSteps = 4;  // of K in a stage: 128 bytes of every position and weights' row
inline constexpr int32_t kRunsConsumerThreads = 256;
// One warp loads: the only one of a warpgroup where the others give their registers to the sums of 256 channels.
inline constexpr bool runs_moves_registers(int32_t channels) { return channels == 256; }
inline constexpr int32_t runs_threads(int32_t channels) {
  return kRunsConsumerThreads + (runs_moves_registers(channels) ? 128 : 32);
}
inline constexpr int32_t kRunsPairedChannels = 64;  // of a tile, two of which an SM may have
inline constexpr int32_t kRunsMostSplits = 8;  // CTAs that share a tile

// Accumulators are staged as float32 [channel][position]; the gap lets those of four pairs of channels meet all banks.
inline constexpr int32_t kRunsStagedPitch = kRunsPositions + 4;

struct PatchRunsLayout {
  int32_t positions;  // of all images
  Divisor by_image, by_rows, by_width;  // positions and rows of positions of an image, positions of a row
  int32_t total_rows;  // of all images
  int32_t rows;  // of a tile
  Divisor channel_tiles;
  int32_t splits, splits_log2;
  int32_t num_stages, stage_channels;  // of the source
  int32_t stage_elements;  // of K
  int32_t kernel_h;
  int32_t patch_log2, columns_log2;  // bytes of a position's patch of a channel, and of a row of it: powers of two
  int32_t line_bytes;     // of a row of grad_output
  int32_t row_bytes;      // of as many of them as a row of positions has
  int32_t channel_pitch;  // from one run of a stage to the next
  bool boxes;  // the runs of a stage come at once, by tensor map
  int32_t slots;
  int32_t weights_bytes, source_bytes;  // of a slot: weights come first, then the runs of all slots
  int32_t sums_begin, sums_bytes;  // of others, where CTAs share a tile
  int32_t barriers_begin;
  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// Everything that follows from a plan's tile; false where it is not legal.
bool make_patch_runs_layout(const ConvTProblem& problem, const PatchRunsTile& plan, PatchRunsLayout* layout);

}  // namespace convt
