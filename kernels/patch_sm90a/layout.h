// Plans of the patch engine (patch_sm90a/): layers whose kernel is their stride, so that every position of the source
// makes a patch of the result that no other one touches. Without padding, as up-sampling layers have them.
// Called by: families/families.h, the engine's plans, launches and kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "patch_sm90a/instances.h"
#include "plan/device.h"
#include "plan/fast_divmod.h"
#include "problem/problem.h"
#include "problem/shapes.h"

namespace convt {

// A layer is one matrix product, [positions, channels] times [channels, taps times channels], and its gradient of the
// input [positions, taps times channels] times [taps times channels, channels]. Positions are the rows: fragments of
// the source come from shared memory as it lies in global memory, in either layout, so that nothing is transposed. A
// thread's results are then whole runs of a patch.
struct PatchTile {
  int32_t instance;  // index into kPatchInstances
  int32_t blocks;  // of 64 columns of the product
  int32_t consumers;  // warpgroups that multiply
  int32_t step;  // positions of a warpgroup
  int32_t tile_positions;  // of all
  int32_t num_chunks;  // stages
  int32_t splits;  // CTAs that share a tile, each with some of its stages
  int32_t source_slots, weight_slots;
  bool resident;  // a CTA's weights stay in shared memory
  bool staged;  // results leave by way of shared memory
  bool whole_rows;  // and are whole rows of positions
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("blocks", blocks);
    field("consumers", consumers);
    field("tile_positions", tile_positions);
    field("num_tiles", num_tiles);
    field("num_chunks", num_chunks);
    field("splits", splits);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
    field("resident", resident);
    field("staged", staged);
    field("whole_rows", whole_rows);
  }
};

inline constexpr int32_t kPatchPositions = 64;  // of a warpgroup
inline constexpr int32_t kPatchChannels = 64;  // result channels of a tile
inline constexpr int32_t kPatchTaps = 4;  // of a patch in a tile, or where patches are gathered of a patch
inline constexpr int32_t kPatchSteps = 4;  // steps of K in a stage: 128 bytes of every position
inline constexpr int32_t kPatchBlockBytes = kPatchSteps * 2 * kPatchChannels * 16;  // weights of a stage
// Operands that are split (tf32x3) have low terms behind the high ones, and a slot of weights has one block alone.
inline constexpr int32_t patch_block_bytes(bool split) { return (split ? 2 : 1) * kPatchBlockBytes; }
inline constexpr int32_t patch_slot_blocks(bool split, int32_t blocks) { return split ? 1 : blocks; }
inline constexpr int32_t kPatchMostSplits = 8;  // CTAs that share a tile, where patches are gathered
inline constexpr int32_t kPatchSharingConsumers = 2;  // warpgroups of such a CTA that multiply
inline constexpr int32_t kPatchLoaderWarps = 3;  // that copy the source; one thread of the fourth has the weights
inline constexpr int32_t patch_threads(int32_t consumers) { return 128 * (consumers + 1); }

// Rows of results that do not begin on sectors of 32 bytes are staged, up to 32 / element channels at a time, twice. A
// thread's results of four pairs of channels lie in banks of their own.
inline constexpr int32_t patch_staged_stride(int32_t element) { return kPatchPositions * kPatchTaps + 16 / element; }
inline constexpr int32_t patch_staged_elements(int32_t element) {  // of a warpgroup
  return 2 * (32 / element) * patch_staged_stride(element);
}

// A row of a stage: a channel's positions, where pairs are gathered a channel's row of their patches, or where channels
// are neighbours a position's channels. The 8 elements or 16 bytes more let fragments be read without bank conflicts.
inline constexpr int32_t patch_row_bytes(PatchForm form, int32_t positions, int32_t element) {
  if (form == PatchForm::kChannels) return 128 + 16;
  if (form == PatchForm::kGather) return 2 * positions * element + 16;
  return (positions + 8) * element;
}
inline constexpr int32_t patch_stage_rows(PatchForm form, int32_t positions, int32_t element) {
  if (form == PatchForm::kChannels) return positions;
  return (form == PatchForm::kGather ? 64 : 128) / element;
}
inline constexpr int32_t patch_stage_bytes(PatchForm form, int32_t positions, int32_t element) {
  return patch_row_bytes(form, positions, element) * patch_stage_rows(form, positions, element);
}
// Steps of K of one tap in a stage: where patches are gathered, a stage has four taps.
inline constexpr int32_t patch_tap_steps(PatchForm form) {
  return form == PatchForm::kGather ? kPatchSteps / kPatchTaps : kPatchSteps;
}

// Tiles along each digit of a tile's number: the first three are columns of the matrix product.
struct PatchGrid {
  int32_t tap_tiles;  // of kPatchTaps; 1 where patches are gathered
  int32_t channel_blocks;  // of kPatchChannels
  int32_t channel_tiles;  // of as many of these as a tile has
  int32_t groups;
  int64_t position_tiles;
};
PatchGrid make_patch_grid(const ConvTProblem& problem, const PatchTile& plan);

// How many bytes of the source may be copied at once, neighbours that exist or do not exist together: 16, 8, 4 or 2; 0
// where positions (channels) are no neighbours in memory.
int32_t patch_source_vector(const ConvTProblem& problem);

// The weights are a matrix whose rows are the input's channels; an output channel's taps follow each other.
inline bool has_rows_of_taps(const ConvTProblem& problem) {
  const int64_t* w = problem.w_stride;
  return w[3] == 1 && (problem.h.kernel == 1 || w[2] == problem.w.kernel) &&
         (problem.c_out == 1 || w[1] == int64_t{problem.h.kernel} * problem.w.kernel);
}

// Bytes of shared memory that a CTA has where `ctas` of them share an SM.
inline int32_t shared_room(const DeviceInfo& device, int32_t ctas) {
  return ctas == 1 ? device.shared_per_block : device.shared_per_sm / ctas - kReservedPerBlock;
}

// The kernel for weights as they are (patch_sm90a/direct.cuh): forward passes in NCHW of layers whose weights are too
// few to be worth packing. In memory the weights are a matrix [channels of the source, columns], a column for every
// result channel and tap, and four neighbouring columns, a *quad*, are the two taps of two rows of a patch or four of a
// row. Columns are the rows of the product, so that weights are its first operand, which registers hold and shared
// memory may have in any layout; positions are its second one. A CTA keeps the source of a tile of positions,
// transposed as it came, and walks through tiles of columns.
struct PatchDirectTile {
  int32_t instance;  // index into kPatchDirectInstances
  int32_t consumers;  // warpgroups that multiply;
  int32_t tiles;  // of columns, that a CTA has one after the other
  int32_t slots;  // stages of weights in shared memory

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("consumers", consumers);
    field("tiles", tiles);
    field("slots", slots);
  }
};

inline constexpr int32_t kDirectPositions = 64;  // of a warpgroup
inline constexpr int32_t kDirectColumns = 128;  // of a tile
inline constexpr int32_t kDirectMostChunks = 12;  // of a tile: with more, packing is faster
inline constexpr int32_t kDirectSteps = 4;  // of K in a stage: 128 bytes of every position and column
inline constexpr int32_t kDirectStageBytes = 128 * kDirectColumns;  // weights of a stage
inline constexpr int32_t direct_threads(int32_t consumers) { return 128 * (consumers + 1); }

// Results are staged by warps, so many bytes of each of eight quads at a time, and a gap behind them: a thread's
// results of neighbouring quads then lie in banks of their own.
inline constexpr int32_t kDirectStagedBytes = 256;
inline constexpr int32_t direct_staged_gap(bool pairs, int32_t element) {
  return pairs == (element == 4) ? 64 : pairs ? 32 : 16;
}
inline constexpr int32_t kDirectStagedWarp = 8 * (kDirectStagedBytes + 64);

struct PatchDirectLayout {
  int32_t positions;  // of all images
  FastDivmod by_image, by_row;  // positions
  FastDivmod position_tiles;
  int32_t k_channels, n_channels, columns, column_tiles;
  int32_t block_tiles;  // of columns, for a CTA
  int32_t num_chunks;  // stages of a tile
  int32_t kernel_h, kernel_w;
  FastDivmod channel_quads, row_quads;  // quads of a channel, and of a row of its taps
  int32_t slots;  // for stages of weights
  int32_t weights_begin, staged_begin, barriers_begin;  // in shared memory
  int32_t shared_bytes;
  int32_t num_blocks;
};

// Everything that follows from a plan's tile; false where it is not legal.
bool make_patch_direct_layout(const ConvTProblem& problem, const PatchDirectTile& plan, PatchDirectLayout* layout);

// The kernel for runs of grad_output (patch_sm90a/runs.cuh): gradients of the input in NCHW of small layers. In memory
// the weights of a channel of the result are one row of K = (channel of the source, tap), as products want their second
// operand; and what some neighbouring rows of positions have of a channel of grad_output is one *run*. A tile is such
// rows of positions of all images, one after the other, times channels of the result. A stage is 128 bytes of K: of the
// weights' rows, by tensor map, and the runs of as many channels of the source.
struct PatchRunsTile {
  int32_t instance;  // index into kPatchRunsInstances
  int32_t channels;  // of the result, of a CTA;
  int32_t rows;  // of positions, of a CTA
  int32_t splits;  // CTAs that share a tile, each with some of its stages
  int32_t slots;  // stages in shared memory

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
// One warp loads: the only one of a warpgroup where the others give their registers to the accumulators of 256
// channels.
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
  FastDivmod by_image, by_rows, by_width;  // positions and rows of positions of an image, positions of a row
  int32_t total_rows;  // of all images
  int32_t rows;  // of a tile
  FastDivmod channel_tiles;
  int32_t splits, splits_log2;
  int32_t num_stages, stage_channels;  // of the source
  int32_t stage_elements;  // of K
  int32_t kernel_h;
  int32_t patch_log2, columns_log2;  // bytes of a position's patch of a channel, and of a row of it: powers of two
  int32_t line_bytes;  // of a row of grad_output
  int32_t row_bytes;  // of as many of them as a row of positions has
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
