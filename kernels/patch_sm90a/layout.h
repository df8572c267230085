// Plans of the patch engine (patch_sm90a/): layers whose kernel is their stride, so that every position of the source
// makes a patch of the result that no other one touches. Without padding, as up-sampling layers have them.
//
// Such a layer is one matrix product, [positions, channels] times [channels, taps times channels], and its gradient of
// the input [positions, taps times channels] times [taps times channels, channels]. Positions are the rows: fragments
// of the source come from shared memory as it lies in global memory, in either layout, so that nothing is transposed. A
// thread's sums are then whole runs of a patch. Called by: plan/families.h, patch_sm90a/launch.cpp, tests. Must not
// know: torch, CUDA.
#pragma once

#include <cstdint>

#include "patch_sm90a/instances.h"
#include "problem/problem.h"

namespace convt {

// The patch engine's tile.
struct PatchTile {
  int32_t instance;  // index into kPatchInstances
  int32_t blocks;  // of 64 columns of the product
  int32_t consumers;  // warpgroups that multiply
  int32_t step;  // positions of a warpgroup
  int32_t tile_positions;  // of all
  int32_t num_chunks;  // stages
  int32_t splits;  // CTAs that share a tile, each a part of its stages
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
inline constexpr int32_t kTurnsSteps = 2;  // the same where warpgroups take turns
inline constexpr int32_t kPatchBlockBytes = kPatchSteps * 2 * kPatchChannels * 16;  // weights of a stage
// Operands that are split (tf32x3) have low parts behind the high ones, and a slot of weights has one block alone.
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

// Where quads of float32 are gathered, the even positions of a row are before the odd ones, and this far from them.
inline constexpr int32_t kPatchQuadsGap = 64;

// A row of a stage: a channel's positions, where pairs are gathered a channel's row of their patches, or where channels
// are neighbours a position's channels. The 8 elements or 16 bytes more let fragments be read without bank conflicts.
inline constexpr int32_t patch_row_bytes(PatchForm form, int32_t positions, int32_t element) {
  if (form == PatchForm::kChannels) return 128 + 16;
  if (form == PatchForm::kGather) return 2 * positions * element + 16;
  if (form == PatchForm::kGatherQuads) return 4 * positions * element + (element == 4 ? kPatchQuadsGap + 96 : 16);
  return (positions + 8) * element;
}
inline constexpr int32_t patch_stage_rows(PatchForm form, int32_t positions, int32_t element) {
  if (form == PatchForm::kChannels) return positions;
  return (form == PatchForm::kGather ? 64 : form == PatchForm::kGatherQuads ? 32 : 128) / element;
}
inline constexpr int32_t patch_stage_bytes(PatchForm form, int32_t positions, int32_t element) {
  return patch_row_bytes(form, positions, element) * patch_stage_rows(form, positions, element);
}
inline constexpr bool gathers_patches(PatchForm form) {
  return form == PatchForm::kGather || form == PatchForm::kGatherQuads;
}
// Steps of K of one tap in a stage: where patches are gathered, a stage has four taps.
inline constexpr int32_t patch_tap_steps(PatchForm form) {
  return gathers_patches(form) ? kPatchSteps / kPatchTaps : form == PatchForm::kTurns ? kTurnsSteps : kPatchSteps;
}

// Where warpgroups multiply and store in turn, a stage has 64 bytes of every position, and a tile of one warpgroup 128
// columns of 128 positions, or in half precision 256 of 64: as many as have sums in registers.
inline constexpr int32_t turns_positions(int32_t element) { return 32 * element; }
inline constexpr int32_t turns_channels(int32_t element) { return 128 / element; }
inline constexpr int32_t turns_stage_bytes(int32_t element) {
  return patch_row_bytes(PatchForm::kTurns, turns_positions(element), element) * (32 * kTurnsSteps / element);
}
inline constexpr int32_t kTurnsLoaderWarps = 4;  // one of which has all weights before its stages
// Results are staged some channels at a time, twice.
inline constexpr int32_t turns_staged_channels(int32_t element) { return element == 4 ? 8 : 32; }
inline constexpr int32_t turns_staged_pitch(int32_t element) {
  return turns_positions(element) * kPatchTaps * element + 16;
}
inline constexpr int32_t turns_staged_bytes(int32_t element) {
  return 2 * turns_staged_channels(element) * turns_staged_pitch(element);
}
inline constexpr int32_t turns_chunk_bytes(int32_t element) {  // weights of a stage
  return 2 * kTurnsSteps * kPatchTaps * turns_channels(element) * 16;
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

// The kernel is the stride, so that a position's results are a patch that no other has a part in. What all families of
// patches serve.
inline bool makes_patches(const ConvTProblem& problem) {
  const Axis* const axes[] = {&problem.h, &problem.w};
  for (const Axis* axis : axes) {
    const bool apart = axis->kernel == axis->stride && (axis->dilation == 1 || axis->kernel == 1);
    if (!apart || axis->padding != 0 || axis->out != int64_t{axis->in} * axis->kernel) return false;
  }
  return true;
}

}  // namespace convt
