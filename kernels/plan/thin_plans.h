// The thin engine's tiles, a part of plans (plan/plan.h).
// Must not know: torch, CUDA.
#pragma once

#include <cstdint>

namespace convt {

// The thin engine's tile: plan/thin_layout.h.
struct ThinPlan {
  int32_t instance;  // index into kThinInstances
  int32_t tile_h;  // positions
  int32_t tile_w;
  int32_t tiles_per_block;
  int32_t block_co;      // result channels of a pass, per group
  int32_t block_groups;  // groups of a pass; more than 1 only with all channels of each
  bool split_phases;     // a pass owns one H phase instead of all
  int32_t chunk_ci;      // channels of the source in shared memory at a time
};

// The same engine's tile for the gradient of the input: plan/thin_grad_input.h.
struct ThinGradInputPlan {
  int32_t instance;      // index into kThinGradInputInstances
  int32_t tile_h;        // positions: elements of the result; a multiple of the instance's
  int32_t tile_w;        // a multiple of 32
  int32_t block_ci;      // result channels of a CTA, per group, a multiple of the instance's
  int32_t block_groups;  // groups of a CTA; more than 1 only with all channels of each
  int32_t chunk_co;      // channels of grad_output in a stage, per group
  int32_t stages;        // pipeline depth
  int32_t tiles_per_block;
};

// The same engine's rows of a warp for a depthwise layer, in any direction: plan/thin_depthwise.h.
struct ThinDepthwisePlan {
  int32_t instance;  // index into kThinDepthwiseInstances
  int32_t rows;      // of positions; 0: this is no such plan
  int32_t columns;   // of positions: follows from the instance
};

// The same engine's rows of a CTA for a depthwise layer in channels_last: plan/thin_channels_last.h.
struct ThinChannelsLastPlan {
  int32_t instance;  // index into kThinChannelsLastInstances
  int32_t rows;      // of positions; 0: this is no such plan
  int32_t vector;    // channels of a thread; where operands do not allow it, launch/ takes 1
  int32_t channels;  // of a CTA: follows from the problem and `vector`, as do its columns of positions
  int32_t columns;
};

// The same engine's kernel of small layers: plan/thin_direct.h and, of the weight, plan/thin_direct_weight.h.
struct ThinDirectPlan {
  int32_t instance;  // index into kThinDirectInstances
  int32_t terms;     // of a thread's sum, at most; 0: this is no such plan
};

// The same engine's tile of gathered terms: plan/thin_gather.h.
struct ThinGatherPlan {
  int32_t instance;         // index into kThinGatherInstances
  int32_t lanes_channels;   // of a warp; the others go along positions
  int32_t warps_channels;   // 0: this is no such plan
  int32_t warps_positions;
  int32_t chunk_ci;         // terms of a stage
  int32_t chunk_taps;
  int32_t stages;           // pipeline depth
};

// The same engine's tile of streamed sources: plan/thin_streamed.h.
struct ThinStreamedPlan {
  int32_t instance;        // index into kThinStreamedInstances
  int32_t warps_channels;  // 0: this is no such plan
  int32_t warps_positions;
};

// The same engine's tile for the gradient of the weight: plan/thin_grad_weight.h. The first two decide the order of
// sums.
struct ThinGradWeightPlan {
  int32_t strip;            // columns of pixels; 0: this is no such plan
  int32_t units_per_chunk;  // of a CTA
  int32_t instance;         // index into kThinGradWeightInstances
  int32_t block_ci;         // channels of a CTA, per group, multiples of the instance's
  int32_t block_co;
  int32_t block_kh;         // tap rows of a CTA
  int32_t block_runs;       // runs of the instance's taps of a CTA
  int32_t tile_units;       // of a stage
  int32_t stages;           // pipeline depth
};

// The same engine's outer products for the gradient of the weight: plan/thin_outer_weight.h. All but the instance and
// the blocks decide the order of sums.
struct ThinOuterWeightPlan {
  int32_t instance;         // index into kThinOuterWeightInstances
  int32_t tile_h;           // pixels of a stage; 0: this is no such plan
  int32_t tile_w;
  int32_t tiles_per_chunk;  // of a CTA
  int32_t splits;           // threads that share a sum's pixels, a power of two
  int32_t block_ci;         // input channels of a CTA
  int32_t block_kh;         // tap rows of a CTA
  int32_t block_vectors;    // vectors of columns of each
};

}  // namespace convt
