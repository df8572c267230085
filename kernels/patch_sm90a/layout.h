// Plans of the patch engine: layers with kernel = stride and no padding, such as upsampling layers. Each source
// position produces a separate patch of the result.
// Called by: families/families.h, the engine's plans, launches and kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "patch_sm90a/instances.h"
#include "plan/device.h"
#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/problem.h"
#include "problem/shapes.h"
#include "problem/volume.h"

namespace convt {

// The problem that the kernels of PatchTile compute. Returns false if there is none.
bool stack_patches(const ConvTProblem& problem, StackedProblem* stacked);

// The forward pass is one GEMM, [positions, channels] x [channels, taps * channels]. The gradient of the input is
// [positions, taps * channels] x [taps * channels, channels]. Positions are the rows. Source fragments are read from
// shared memory in the layout of global memory, in both layouts, without a transpose. A thread's results are whole runs
// of a patch.
struct PatchTile {
  int32_t instance;  // index into kPatchInstances
  int32_t blocks;  // of 64 columns of the GEMM
  int32_t consumers;  // consumer warpgroups
  int32_t step;  // positions per warpgroup
  int32_t tile_positions;  // positions of all warpgroups
  int32_t num_chunks;  // pipeline stages
  int32_t splits;  // CTAs that split the stages of a tile
  int32_t source_slots, weight_slots;
  bool resident;  // a CTA's weights stay in shared memory
  bool staged;  // results are stored through shared memory
  bool whole_rows;  // staged results are whole rows of positions
  int32_t weights_begin, staged_begin, barriers_begin;  // offsets in shared memory
  int64_t num_tiles;

  CONVT_TILE_FIELDS(blocks, consumers, tile_positions, num_tiles, num_chunks, splits, source_slots, weight_slots,
                    resident, staged, whole_rows)
};

inline constexpr int32_t kPatchPositions = 64;  // per warpgroup
inline constexpr int32_t kPatchChannels = 64;  // result channels per tile
inline constexpr int32_t kPatchTaps = 4;  // taps of a patch per tile, or per stage if the kernel gathers
inline constexpr int32_t kPatchSteps = 4;  // steps of K per stage: 128 bytes of each position
inline constexpr int32_t kPatchBlockBytes = kPatchSteps * 2 * kPatchChannels * 16;  // weights of a block per stage
// Split operands (tf32x3) have low terms after the high terms, and one block per weight slot.
inline constexpr int32_t patch_block_bytes(bool split) { return (split ? 2 : 1) * kPatchBlockBytes; }
inline constexpr int32_t patch_slot_blocks(bool split, int32_t blocks) { return split ? 1 : blocks; }
inline constexpr int32_t kPatchMostSplits = 8;  // CTAs that share a tile, in kernels that gather
inline constexpr int32_t kPatchSharingConsumers = 2;  // consumer warpgroups of such a CTA
inline constexpr int32_t kPatchLoaderWarps = 3;  // copy the source; one thread of the fourth warp loads weights
inline constexpr int32_t patch_threads(int32_t consumers) { return 128 * (consumers + 1); }

// Rows of results that are not aligned to 32-byte sectors are stored through two buffers of 32 / element channels. The
// stride avoids bank conflicts between the four pairs of channels of a warp.
inline constexpr int32_t patch_staged_stride(int32_t element) { return kPatchPositions * kPatchTaps + 16 / element; }
inline constexpr int32_t patch_staged_elements(int32_t element) {  // per warpgroup
  return 2 * (32 / element) * patch_staged_stride(element);
}

// Bytes of a row of a stage: a channel's positions, a channel's row of their patches if the kernel gathers, or a
// position's channels in channels_last. The padding of 8 elements or 16 bytes avoids bank conflicts of fragment loads.
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
// Steps of K per tap in a stage. If the kernel gathers, a stage contains four taps.
inline constexpr int32_t patch_tap_steps(PatchForm form) {
  return form == PatchForm::kGather ? kPatchSteps / kPatchTaps : kPatchSteps;
}

// Tiles along each digit of a tile's index. The first three digits are GEMM columns.
struct PatchGrid {
  int32_t tap_tiles;  // of kPatchTaps; 1 if the kernel gathers
  int32_t channel_blocks;  // of kPatchChannels
  int32_t channel_tiles;  // in units of a tile's blocks
  int32_t groups;
  int64_t position_tiles;
};
PatchGrid make_patch_grid(const ConvTProblem& problem, const PatchTile& plan);

// Bytes per source copy: 16, 8, 4 or 2 contiguous bytes that are all inside or all outside the source. 0 if positions
// (or channels) are not contiguous.
int32_t patch_source_vector(const StackedProblem& problem);

// Taps of a result channel, of all planes.
inline int64_t num_taps(const ConvTProblem& problem) {
  return int64_t{problem.d.kernel} * problem.h.kernel * problem.w.kernel;
}

// Whether the weights are a matrix whose rows are input channels, with contiguous taps per output channel.
inline bool has_rows_of_taps(const ConvTProblem& problem) {
  const int64_t* w = problem.w_stride;
  return w[3] == 1 && (problem.h.kernel == 1 || w[2] == problem.w.kernel) &&
         (problem.d.kernel == 1 || problem.w_plane == int64_t{problem.h.kernel} * problem.w.kernel) &&
         (problem.c_out == 1 || w[1] == num_taps(problem));
}

// patch_direct (patch_sm90a/direct.cuh): forward passes in NCHW with too few weights for packing to pay. In memory the
// weights are a matrix [source channels, columns], with a column per result channel and tap. Four contiguous columns, a
// *quad*, are two taps of each of two rows of a patch, or four taps of a row. Columns are GEMM rows, so weights are
// operand A in registers, which permits any layout in shared memory. Positions are operand B. A CTA keeps the
// transposed source of a tile of positions and iterates over tiles of columns.
struct PatchDirectTile {
  int32_t instance;  // index into kPatchDirectInstances
  int32_t consumers;  // consumer warpgroups
  int32_t tiles;  // tiles of columns per CTA
  int32_t slots;  // weight stages in shared memory

  CONVT_TILE_FIELDS(consumers, tiles, slots)
};

inline constexpr int32_t kDirectPositions = 64;  // per warpgroup
inline constexpr int32_t kDirectColumns = 128;  // per tile
inline constexpr int32_t kDirectMostChunks = 12;  // per tile; with more, packing is faster
inline constexpr int32_t kDirectSteps = 4;  // steps of K per stage: 128 bytes of each position and column
inline constexpr int32_t kDirectStageBytes = 128 * kDirectColumns;  // weights per stage
inline constexpr int32_t direct_threads(int32_t consumers) { return 128 * (consumers + 1); }

// Warps store results through shared memory, kDirectStagedBytes of each of eight quads per pass. A gap after each quad
// avoids bank conflicts between adjacent quads.
inline constexpr int32_t kDirectStagedBytes = 256;
inline constexpr int32_t direct_staged_gap(bool pairs, int32_t element) {
  return pairs == (element == 4) ? 64 : pairs ? 32 : 16;
}
inline constexpr int32_t kDirectStagedWarp = 8 * (kDirectStagedBytes + 64);

struct PatchDirectLayout {
  int32_t positions;  // of all images; those of all planes of an image are contiguous
  FastDivmod by_image, by_row;  // divisors of a position
  FastDivmod by_rows;           // rows per plane
  FastDivmod position_tiles;
  int32_t k_channels, n_channels, columns, column_tiles;
  int32_t block_tiles;  // tiles of columns per CTA
  int32_t num_chunks;  // stages per tile
  int32_t kernel_d, kernel_h, kernel_w;
  FastDivmod by_tap_rows;  // rows per plane of taps
  FastDivmod channel_quads, row_quads;  // quads per channel, and per row of its taps
  int32_t slots;  // weight slots
  int32_t weights_begin, staged_begin, barriers_begin;  // offsets in shared memory
  int32_t shared_bytes;
  int32_t num_blocks;
};

// Completes the layout from a plan's tile. Returns false if the tile is not legal.
bool make_patch_direct_layout(const ConvTProblem& problem, const PatchDirectTile& plan, PatchDirectLayout* layout);

// patch_runs (patch_sm90a/runs.cuh): gradients of the input in NCHW of small layers. In memory the weights of a result
// channel are one row of K = (source channel, tap), as wgmma requires for operand B. The part of a grad_output channel
// that belongs to adjacent rows of positions is one *run*. A tile is such rows of positions, counted over all images,
// times result channels. A stage is 128 bytes of K: the weights' rows, loaded by tensor map, and the runs of the
// corresponding source channels.
struct PatchRunsTile {
  int32_t instance;  // index into kPatchRunsInstances
  int32_t channels;  // result channels per CTA
  int32_t rows;  // rows of positions per CTA
  int32_t splits;  // CTAs that split the stages of a tile
  int32_t slots;  // stages in shared memory

  CONVT_TILE_FIELDS(channels, rows, splits, slots)
};

inline constexpr int32_t kRunsPositions = 128;  // maximum per tile, for two warpgroups
inline constexpr int32_t kRunsSteps = 4;  // steps of K per stage: 128 bytes of each position and weights' row
inline constexpr int32_t kRunsConsumerThreads = 256;
// Whether the loading warp has its own warpgroup, which gives registers to the accumulators of 256 channels. Otherwise
// only this warp is added to the consumers.
inline constexpr bool runs_moves_registers(int32_t channels) { return channels == 256; }
inline constexpr int32_t runs_threads(int32_t channels) {
  return kRunsConsumerThreads + (runs_moves_registers(channels) ? 128 : 32);
}
inline constexpr int32_t kRunsPairedChannels = 64;  // tile width for which two CTAs fit an SM
inline constexpr int32_t kRunsMostSplits = 8;  // CTAs that share a tile

// Accumulators are written as float32 [channel][position]. The gap avoids bank conflicts between four pairs of
// channels.
inline constexpr int32_t kRunsStagedPitch = kRunsPositions + 4;

struct PatchRunsLayout {
  int32_t positions;  // of all images
  FastDivmod by_image, by_rows, by_width;  // positions and rows of positions per image, positions per row
  int32_t total_rows;  // of all images
  int32_t rows;  // per tile
  FastDivmod channel_tiles;
  int32_t splits, splits_log2;
  int32_t num_stages, stage_channels;  // stage_channels: source channels per stage
  int32_t stage_elements;  // elements of K per stage
  int32_t kernel_h;
  int32_t patch_log2, columns_log2;  // log2 of a position's patch in a channel, and of a row of it, in bytes
  int32_t line_bytes;  // bytes of a row of grad_output
  int32_t row_bytes;  // bytes of the lines of a row of positions
  int32_t channel_pitch;  // bytes between the runs of a stage
  bool boxes;  // one TMA copy loads the runs of a stage
  int32_t slots;
  int32_t weights_bytes, source_bytes;  // per slot; the weights of all slots come first, then the runs
  int32_t sums_begin, sums_bytes;  // partial accumulators of other CTAs, if CTAs share a tile
  int32_t barriers_begin;
  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// Completes the layout from a plan's tile. Returns false if the tile is not legal.
bool make_patch_runs_layout(const ConvTProblem& problem, const PatchRunsTile& plan, PatchRunsLayout* layout);

}  // namespace convt
