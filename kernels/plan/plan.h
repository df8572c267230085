// A plan: which kernel instance runs a problem, with which tile. Pure data, made by choose_plan(),
// obeyed by launch/, shown by to_json().
// Must not know: torch, CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/device.h"
#include "plan/engine.h"
#include "plan/simt_instances.h"
#include "plan/thin_plans.h"
#include "problem/problem.h"

namespace convt {

// The exact-order engine's tile.
struct SimtPlan {
  int32_t instance;   // index into kInstances
  int32_t block_co;   // output channels of a tile, a power of two times the instance's thread_co
  int32_t tile_n;     // images of a tile; more than 1 only when tile_h covers every position
  int32_t tile_h;     // positions of one H phase
  int32_t tile_w;     // positions of each W phase, a multiple of 4
  int32_t fused_w;    // W phases computed as output channels (problem/fuse.h), or 1; then all fields are y' 's
  int32_t phases_w;   // W phases that one tile owns: all of them, unless staging would not fit
  int32_t chunk_ci;   // input channels of a stage
  int32_t chunk_kh;   // taps of the phase along H, W of a stage
  int32_t chunk_kw;
  int32_t stages;     // pipeline depth
};

// The same engine's tile for the gradient of the weight: plan/simt_grad_weight.h.
struct GradWeightPlan {
  int32_t instance;     // index into kGradWeightInstances
  int32_t block_ci;     // channels of a CTA, multiples of the instance's
  int32_t block_co;
  int32_t block_kh;     // tap rows of a CTA
  int32_t block_runs;   // runs of thread_kw taps of a CTA
  int32_t splits;       // threads that share a sum's pixels, a power of two
  int32_t tile_h;       // pixels of a stage
  int32_t tile_w_log2;
  int64_t tiles_per_chunk;
};

// How the blocks of 64 positions that one matrix product takes lie in a tile of the wgmma engine.
enum class BlockShape : int32_t {
  kLines,    // 64 neighbours of a row
  kSquares,  // 8 rows of 8 neighbours
  kFlat,  // 64 neighbours of the operand plane, from row to row and image to image; halo positions are computed too
};

// The wgmma engine's tile: plan/wgmma.h.
struct WgmmaPlan {
  int32_t instance;  // index into kWgmmaInstances
  int32_t block_n;  // result channels of a tile
  int32_t split_phases;  // W phases of a tile: 1, 2 or 4
  BlockShape shape;
  int32_t blocks;  // of a tile, for each W phase
  int32_t tile_n, tile_h, tile_w;
  int32_t rows, pitch;  // of a window: rows, and positions of a row
  int32_t plane_positions;
  bool by_channels;  // channels are neighbours in memory: the source goes straight into operand slots
  int32_t k_steps;  // steps of K in a stage
  int32_t num_chunks;  // stages
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t raw_lines, raw_pitch;  // of a channel in a raw slot: window rows, and elements of a row
  int32_t raw_slots, raw_bytes, raw_channel_bytes;
  int32_t raw_begin, weights_begin, staged_begin, lists_begin, barriers_begin;  // in shared memory
  int32_t staged_stride;
  int64_t num_tiles;
};

// The flat engine's tile: plan/flat.h.
struct FlatPlan {
  int32_t instance;  // index into kFlatInstances
  int32_t phases;    // W phases of a tile
  int32_t consumers;  // warpgroups that multiply
  int32_t sums;      // of each for a channel: positions times W phases
  bool split_channels;  // the warpgroups take different channels of the same positions, not the reverse
  int32_t tile_positions;  // of the CTA
  int32_t window;    // positions of a plane in a stage
  int32_t k_steps;   // steps of K in a stage
  int32_t num_chunks;  // stages, times the residues
  int32_t source_slots, weight_slots, slot_taps, tap_bytes;
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int64_t plane_bytes;   // of the packed source
  int64_t num_tiles;
};

// The patch engine's tile: plan/patch.h.
struct PatchPlan {
  int32_t instance;  // index into kPatchInstances
  int32_t blocks;     // of 64 columns of the product
  int32_t consumers;  // warpgroups that multiply
  int32_t step;  // positions of a warpgroup
  int32_t tile_positions;  // of all
  int32_t num_chunks;  // stages
  int32_t parts;       // CTAs that share a tile, each a part of its stages
  int32_t source_slots, weight_slots;
  bool resident;  // a CTA's weights stay in shared memory
  bool staged;      // results leave by way of shared memory
  bool whole_rows;  // and are whole rows of positions
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;
};

// The same engine's tile of weights as they are: plan/patch_direct.h.
struct PatchDirectPlan {
  int32_t instance;   // index into kPatchDirectInstances
  int32_t consumers;  // warpgroups that multiply; 0: this is no such plan
  int32_t tiles;      // of columns, that a CTA has one after the other
  int32_t slots;      // stages of weights in shared memory
};

// And its tile of runs of grad_output, of which a position has its patch: plan/patch_runs.h.
struct PatchRunsPlan {
  int32_t instance;  // index into kPatchRunsInstances
  int32_t channels;  // of the result, of a CTA; 0: this is no such plan
  int32_t rows;      // of positions, of a CTA
  int32_t parts;     // CTAs that share a tile, each a part of its stages
  int32_t slots;     // stages in shared memory
};

// The mma engine's tile: plan/mma_layout.h.
struct MmaPlan {
  int32_t instance;  // index into kMmaInstances
  int32_t threads;   // 128 or 256
  int32_t tile_h;    // positions
  int32_t tile_w;
  int32_t block_co;        // result channels of a pass
  bool split_phases;       // a pass owns one H phase instead of all
  int32_t chunk_steps;     // steps of K in a stage, 32 bytes of channels each
  int32_t raw_slots;       // stages on their way from memory
  int32_t blocks_per_pass;
};

// The same engine's tile of whole rows: plan/mma_rows.h.
struct MmaRowsPlan {
  int32_t instance;  // index into kMmaRowsInstances
  int32_t warps;     // that multiply
  int32_t tile_h;    // rows of positions; 0: this is no such plan
  int32_t block_co;  // result channels of a pass
  int32_t slots;     // staged tiles
  int32_t padding;   // sectors behind a staged channel, so that channels meet different banks
  bool interleaved;  // the CTAs of a pass take turns, instead of each having neighbouring tiles
  int32_t blocks_per_pass;
};

// The same engine's tile for the gradient of the input: plan/mma_grad_input.h.
struct MmaGradInputPlan {
  int32_t instance;  // index into kMmaGradInputInstances
  int32_t warps;     // that multiply
  int32_t splits;    // of K, by the warps that share a unit of sums
  int32_t tile_h;    // positions: elements of the result; 0: this is no such plan
  int32_t tile_w;
  int32_t chunk_co;  // channels of grad_output in a stage
  int32_t chunk_kh;  // and rows of taps: all but where vectors are read in channels_last
  int32_t stages;    // pipeline depth
  int32_t blocks_per_group;
  int32_t order;    // of K in a stage: grad_input_tap()
  int32_t padding;  // vectors behind a channel of a stage, or a row of all channels, against bank conflicts
};

// The same engine's tile for the gradient of the weight: plan/mma_grad_weight.h.
struct MmaGradWeightPlan {
  int32_t instance;  // index into kMmaGradWeightInstances
  int32_t strip;     // columns of pixels; 0: this is no such plan
  int32_t units_per_chunk;
  int32_t block_ci;
  int32_t block_co;
  int32_t block_kh;
  int32_t block_kw;
  int32_t tile_units;  // of a stage
  int32_t stages;
  int32_t loaders;     // warps that load
  bool taps_first;      // neighbouring rows of the GEMM are taps of a channel, not channels of a tap
  int32_t pixel_order;  // which pixels are neighbouring lanes'
  int32_t x_padding;    // vectors behind a channel (or pixel) of a stage, so that these meet different banks
  int32_t gy_padding;
};

// The strided engine's tile: plan/strided.h.
struct StridedPlan {
  int32_t instance;  // index into kStridedInstances
  int32_t block_n;   // result channels
  int32_t parts;     // CTAs that share a tile, each a part of the source's channels
  bool alternate;       // the warpgroups of a CTA share a tile, each every other stage
  int32_t strip_width;  // columns of positions
  int32_t tile_images;  // whole ones, or 1 of which a tile has a part
  int32_t tile_quads;   // of four neighbouring positions
  bool whole_images;    // of the source in a stage: an image of a channel is one row of it
  bool image_copies;    // which is too long for a tensor map's box, and a copy of its own
  int32_t box_rows, pitch, box_lead;  // rows, elements of a row, of these before the first
  int32_t num_chunks;  // stages
  int32_t stage_bytes, source_slots, weight_slots;
  int32_t weights_begin, zeros_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;
};

// The window engine's tile: plan/window.h.
struct WindowPlan {
  int32_t instance;  // index into kWindowInstances
  int32_t block_n;   // result channels
  int32_t tile_h, tile_w;
  int32_t overlap;  // columns that neighbouring tiles share, so that each may begin on a sector of memory
  int32_t row_classes, channel_classes;  // of the source, 1 where all rows begin on 16 bytes
  int32_t pitch;                         // elements from one channel of a stage to the next
  int32_t num_chunks;  // stages
  int32_t source_slots, slot_bytes;  // of stages in shared memory
  int32_t staged_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;
};

// The NHWC engine's tile: plan/nhwc.h.
struct NhwcPlan {
  int32_t instance;  // index into kNhwcInstances
  int32_t block_n;   // result channels
  int32_t parts;     // CTAs that share a tile, each a part of its stages
  bool direct;       // weights come to shared memory as they are
  bool staged;       // results leave by way of shared memory
  int32_t tile_w, tile_h, tile_n;  // positions
  int32_t box_w, box_h;  // places of the source for them
  int32_t num_chunks;  // of the source's channels
  int32_t num_windows;  // stages of a chunk
  int32_t stage_bytes, source_slots, weight_slots;
  int32_t weights_begin, staged_begin, barriers_begin, bias_begin;  // in shared memory
  int64_t num_tiles;
};

// The scatter engine's tile: plan/scatter_layout.h.
struct ScatterPlan {
  int32_t instance;     // index into kScatterInstances
  int32_t strips;       // images beside each other
  int32_t tile_rows;    // of positions
  int32_t chunk_steps;  // steps of K in a stage, 32 bytes of channels each
  int32_t stages;       // pipeline depth
};

// The upsample engine's tile: plan/upsample_layout.h.
struct UpsamplePlan {
  int32_t instance;   // index into kUpsampleInstances
  int32_t tile_rows;  // of positions
  int32_t shares;     // CTAs with the same weights
  int32_t slots;      // source rows in shared memory
};

struct Plan {
  Engine engine;
  const char* kernel;  // the instance's name, a string constant
  Precision served_precision;  // may be stricter than the problem's
  int32_t threads;
  int32_t shared_bytes;  // dynamic shared memory
  int64_t num_blocks;  // CTAs of the grid
  int64_t workspace_bytes;  // device memory for the time of the call
  int64_t packed_bytes;  // the beginning of that, for the packed weights, which a caller may keep

  // Plans know strides, but not where a tensor begins: these must begin on 16 bytes, for tensor maps and wide copies.
  bool result_on_vectors;
  bool source_on_vectors;
  bool weight_on_vectors;

  // The one that engine and direction name; the others are zero.
  SimtPlan simt;
  GradWeightPlan grad_weight;
  ThinPlan thin;
  ThinGradInputPlan thin_grad_input;
  ThinDepthwisePlan thin_depthwise;
  ThinChannelsLastPlan thin_channels_last;
  ThinDirectPlan thin_direct;
  ThinGatherPlan thin_gather;
  ThinStreamedPlan thin_streamed;
  ThinGradWeightPlan thin_grad_weight;
  ThinOuterWeightPlan thin_outer_weight;
  WgmmaPlan wgmma;
  FlatPlan flat;
  PatchPlan patch;
  PatchDirectPlan patch_direct;
  PatchRunsPlan patch_runs;
  MmaPlan mma;
  MmaRowsPlan mma_rows;
  MmaGradInputPlan mma_grad_input;
  MmaGradWeightPlan mma_grad_weight;
  StridedPlan strided;
  WindowPlan window;
  NhwcPlan nhwc;
  ScatterPlan scatter;
  UpsamplePlan upsample;

  double compute_us;  // estimates
  double memory_us;
  double estimate_us;
  bool measured;  // estimate_us is a measurement: plan/measured.h
};

// A plan of one instance, before anything of its tile is known.
inline Plan begin_plan(Engine engine, const char* kernel, Precision served_precision) {
  Plan plan{};
  plan.engine = engine;
  plan.kernel = kernel;
  plan.served_precision = served_precision;
  return plan;
}

template <typename Layout>
void set_launch(const Layout& layout, Plan* plan) {
  plan->threads = layout.threads;
  plan->shared_bytes = layout.shared_bytes;
  plan->num_blocks = layout.num_blocks;
}

// Every legal plan that is worth considering: the measured one first where there is one, then the best estimate. Never
// empty for a legal problem. Throws std::invalid_argument for a problem no kernel serves (a class without a kernel for
// its dtype).
std::vector<Plan> candidate_plans(const ConvTProblem& problem, const DeviceInfo& device);

// The first of candidate_plans().
Plan choose_plan(const ConvTProblem& problem, const DeviceInfo& device);

// Lower bound in microseconds: bytes that must move / copy bandwidth, or useful operations / rate
// of the unit that does them, whichever is larger. `rate_tflops` <= 0: the FFMA (or DFMA) rate.
double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops);

// About the shortest time in which PyTorch 2.11 with cuDNN 9.19 was seen to run such a problem on an H200
// (docs/measuring.md), in microseconds and in the problem's direction: float32 as ieee, aten or tf32, half precision
// on tensor cores, float64 (for the gradients of aten and float64 the forward pass's formula stands in). 0 elsewhere,
// where nothing is known. Where a plan's estimate is longer, an unchanged user is better served by PyTorch. For some
// layers of networks it is the time that was measured (plan/measured.h).
double torch_us(const ConvTProblem& problem, const DeviceInfo& device);

// The same without the table of measured layers.
double torch_estimate_us(const ConvTProblem& problem, const DeviceInfo& device);

// The plan, its problem, device, estimates and the losing candidates as one JSON object.
std::string to_json(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
