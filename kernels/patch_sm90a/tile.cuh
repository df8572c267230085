// The results of a tile of the patch kernel, and the fragment of a thread.
#pragma once

#include "element/operand.cuh"
#include "hopper/kernel.cuh"
#include "patch_sm90a/params.h"

namespace convt::patch_sm90a {

using hopper::tile_step;

// Patch rows and columns per stage, if the kernel gathers.
inline constexpr int kGatherRows = 2, kGatherColumns = kPatchTaps / kGatherRows;

// kBlocks taps of a patch or sets of channels, with kPatchChannels channels each, and kPatchPositions positions per
// warpgroup.
template <typename TraitsValue, PatchForm kFormValue, int kBlocksValue, int kConsumersValue>
struct Shape {
  using Traits = TraitsValue;
  using Element = typename Traits::Element;
  static constexpr PatchForm kForm = kFormValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kBlocks = kBlocksValue;
  static constexpr bool kByChannels = (kForm == PatchForm::kChannels);
  static constexpr bool kGathers = (kForm == PatchForm::kGather);
  // Columns of a position in a row of the result, NCHW.
  static constexpr int kColumns = kGathers ? 1 : kForm == PatchForm::kPairs ? 2 : 4;
  static constexpr bool kSplit = Traits::kSplit;
  static constexpr bool kShares = kGathers && kConsumers == kPatchSharingConsumers;  // CTAs may share a tile
  static constexpr int kTaps = kGathers ? 1 : kBlocks;  // taps of a tile's results
  static constexpr int kBlockBytes = patch_block_bytes(kSplit);  // weights per stage
  static constexpr int kSets = kBlocks == 2 ? 2 : 1;  // accumulator sets of split products, in flight or being added
  static constexpr int kSlotBlocks = patch_slot_blocks(kSplit, kBlocks);
  static constexpr int kElement = sizeof(Element);
  // Whether a thread's two positions are adjacent. If each of them already has 16 bytes, adjacent threads store whole
  // sectors instead.
  static constexpr bool kNeighbours = !kByChannels && !(kForm == PatchForm::kQuads && kElement == 4);
  // Whether threads exchange results because each has less than 16 bytes of a channel. It is slower for float32
  // gradients with two consumer warpgroups.
  static constexpr bool kExchanges = kGathers && (kElement == 2 || kConsumers == 1);
  static constexpr int kStagePositions = kConsumers * kPatchPositions;
  static constexpr int kStageChannels = 128 / kElement;
  static constexpr int kGatherChannels = 2 * Traits::kChannels;
  static constexpr int kRowBytes = patch_row_bytes(kForm, kStagePositions, kElement);
  static constexpr int kStageRows = patch_stage_rows(kForm, kStagePositions, kElement);
  static constexpr int kStageBytes = patch_stage_bytes(kForm, kStagePositions, kElement);
};

// Accumulators of a thread: accumulator 4 * j + 2 * h + i of a product is column 8 * j + 2 * (lane % 4) + i of the
// lane's position h. Each block is a product.
template <typename Shape>
struct Accumulators {
  float r[Shape::kBlocks][kPatchChannels / 2];
};

struct Tile {
  int32_t tap_h, tap_w;  // first tap
  int32_t channel_tile;
  int32_t group;
  int32_t begin;  // first position
};

// Order of tiles: taps fastest, then channels, groups, positions, so that consecutive tiles share their source in L2.
template <typename Shape>
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  int32_t taps;
  number = params.tap_tiles(number, &taps);
  number = params.channel_tiles(number, &tile.channel_tile);
  number = params.group_tiles(number, &tile.group);
  tile.begin = number * params.tile_positions;
  if (params.kernel_w <= 2) {
    tile.tap_h = Shape::kTaps / 2 * taps;
    tile.tap_w = 0;
  } else {
    const int32_t of_row = params.kernel_w / kPatchTaps;
    tile.tap_h = taps / of_row;
    tile.tap_w = taps % of_row * kPatchTaps;
  }
  return tile;
}

// Element offset of an image.
__device__ __forceinline__ int64_t image_offset(const Params& params, int32_t image, int64_t batch_stride,
                                                int64_t image_stride) {
  int32_t plane;
  const int32_t batch = params.by_planes(image, &plane);
  return batch * batch_stride + plane * image_stride;
}

// Element offset of a row of a patch. `line`: elements between rows of a plane.
__device__ __forceinline__ int64_t tap_row_offset(const Params& params, int32_t tap_row, int64_t line) {
  int32_t row;
  const int32_t plane = params.by_tap_rows(tap_row, &row);
  return plane * params.plane_stride + row * line;
}

// The first tile of a CTA. Avoids the division in kernels that do not share tiles.
template <typename Shape>
__device__ __forceinline__ int32_t first_tile(const Params& params) {
  return Shape::kShares ? hopper::first_tile(params) : static_cast<int32_t>(blockIdx.x);
}

// The stages of a tile that a CTA multiplies. CTAs of a cluster split the stages of one tile.
struct Stages {
  int32_t begin, end;
};

template <typename Shape>
__device__ __forceinline__ Stages stages_of_block(const Params& params) {
  if (!Shape::kShares || params.splits == 1) return {0, params.num_chunks};
  const int32_t rank = static_cast<int32_t>(blockIdx.x) % params.splits;  // in the cluster
  return {params.num_chunks * rank / params.splits, params.num_chunks * (rank + 1) / params.splits};
}

// Index of a lane's position 0 or 1 among the 64 positions of its warpgroup.
template <typename Shape>
__device__ __forceinline__ int32_t position_of_thread(int which) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x % 128);
  const int32_t of_warp = thread / 32 * 16, of_lane = thread % 32 / 4;
  return of_warp + (Shape::kNeighbours ? 2 * of_lane + which : of_lane + 8 * which);
}

}  // namespace convt::patch_sm90a
