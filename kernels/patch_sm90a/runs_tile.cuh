// Which results a CTA of the kernel for runs of grad_output owns, and which stages of them it multiplies.
#pragma once

#include "element/operand.cuh"
#include "patch_sm90a/runs_params.h"

namespace convt::patch_sm90a {

struct RunsTile {
  int32_t first_row;      // of positions, of all images
  int32_t first_channel;  // of the result
  int32_t first_stage, end_stage;
};

// Neighbouring tiles share their source in L2; CTAs of a cluster have a tile, and each a part of its stages.
__device__ __forceinline__ RunsTile runs_tile(const RunsParams& params, int32_t channels) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t part = block & (params.splits - 1);
  int32_t channel_tile;
  const int32_t row_tile = params.channel_tiles(block >> params.splits_log2, &channel_tile);
  return {row_tile * params.rows, channel_tile * channels, params.num_stages * part >> params.splits_log2,
          params.num_stages * (part + 1) >> params.splits_log2};
}

// This thread's part of a tile: sum 4 * j + 2 * h + i is channel 8 * j + 2 * (lane % 4) + i of position
// lane / 4 + 8 * h of the warp's sixteen.
template <int kChannels>
struct RunsSums {
  float r[kChannels / 2];
};

}  // namespace convt::patch_sm90a
