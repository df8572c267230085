// Plans of the nhwc family: forward and gradient of the input, in any layout.
//
// Positions are results of one phase and form the rows of the GEMM. Channels are contiguous in memory, so 128 bytes of
// a position's channels are an operand row without rearrangement. A tile is a box of positions. The taps of a phase, or
// in the gradient those of one residue of the source coordinates, read shifted windows of the source. One box contains
// all of these windows.
// Called by: families/families.h, nhwc_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "nhwc_sm90a/instances.h"
#include "pack/pixels.h"
#include "plan/tap_program.h"
#include "plan/tile.h"
#include "problem/problem.h"

namespace convt {

struct NhwcTile {
  int32_t instance;  // index into kNhwcInstances
  int32_t block_n;  // result channels per tile
  int32_t splits;  // CTAs of a cluster that split the stages of a tile
  int32_t k_splits;  // stream-K: CTAs per tile of the last wave; 1: none
  int64_t split_tiles;  // tiles of the last wave that are split
  bool direct;  // weights are copied without packing
  bool staged;  // channels_last results are stored through shared memory
  bool rows;  // rows are stored through shared memory: NCHW, or unaligned pixels of channels_last
  int32_t interleaved_phases_w;  // interleaved W phases in NCHW, which one CTA computes one after the other
  bool gathers;  // threads gather the source, because no tensor map describes it
  bool packs_source;  // a kernel first packs the source into pixels that a tensor map describes
  bool box_per_tap;  // each tap reads its own box
  int32_t tile_w, tile_h, tile_n;  // positions
  int32_t box_w, box_h;  // source places of a box
  int32_t num_chunks;  // chunks of source channels
  int32_t num_windows;  // stages per chunk
  int32_t stage_bytes, source_slots, weight_slots;
  int32_t slot_taps;  // taps per weight slot
  int32_t weights_begin, staged_begin, barriers_begin, bias_begin;  // offsets in shared memory
  int64_t num_tiles;
  int64_t partials_bytes;  // bytes at the start of the workspace: partial sums and their counters

  std::vector<TileField> fields() const {
    return list_fields(
        "block_n, splits, parts, direct, staged, rows, gathers, packs_source, apart, tile_n, tile_h, tile_w, "
        "num_tiles, num_chunks, source_slots, weight_slots, slot_taps",
        block_n, splits, k_splits, direct, staged, rows, gathers, packs_source, box_per_tap, tile_n, tile_h, tile_w,
        num_tiles, num_chunks, source_slots, weight_slots, slot_taps);
  }
};

inline constexpr int32_t kNhwcConsumers = 2;  // consumer warpgroups
inline constexpr int32_t kNhwcThreads = 128 * (kNhwcConsumers + 1);

// Warps and threads that gather the source if no tensor map describes it, and elements that each thread copies per
// batch. Halves are copied as words of 4 bytes to one of two buffers.
inline constexpr int32_t kNhwcGatheringWarps = 3;
inline constexpr int32_t kNhwcGatheringThreads = 32 * kNhwcGatheringWarps;
inline constexpr int32_t kNhwcGatheredWords = 32;
inline constexpr int32_t nhwc_gathered_bytes(int32_t element) {
  return element == 4 ? 0 : 2 * kNhwcGatheredWords * kNhwcGatheringThreads * 4;
}

// Whether a place's row of a stage consists of whole batches.
inline constexpr bool nhwc_can_gather(int32_t k_steps, int32_t element) {
  return 32 * k_steps % (kNhwcGatheredWords * element) == 0;
}

inline constexpr int32_t kNhwcMostWindows = 64;  // of all phases, or of a tile
inline constexpr int32_t kNhwcMostStagedPhases = 4;
inline constexpr int32_t kNhwcStagedBuffers = 2;
inline constexpr int32_t kNhwcMostSplits = 4;  // CTAs of a cluster that share a tile
inline constexpr int32_t kNhwcMostParts = 8;  // parts of a tile of the last wave

inline constexpr int32_t nhwc_row_bytes(int32_t k_steps) { return 32 * k_steps; }
// Whether clusters may share tiles, or CTAs split them: only with one CTA per SM.
inline constexpr bool nhwc_shares_tiles(int32_t ctas) { return ctas == 1; }
// Fragments of half a stage's steps are loaded while the other half is multiplied. Stages of one step therefore support
// only operands in shared memory.
inline constexpr bool nhwc_reads_boxes_alone(int32_t k_steps) { return k_steps == 1; }
inline constexpr int32_t nhwc_term_bytes(int32_t block_n, int32_t k_steps) { return 32 * k_steps * block_n; }
// In tf32x3 a tap's weights are high terms, then low terms.
inline constexpr int32_t nhwc_terms(Precision precision) { return precision == Precision::kTf32x3 ? 2 : 1; }
inline constexpr int32_t nhwc_tap_bytes(const NhwcInstance& instance) {
  return nhwc_terms(instance.precision) * nhwc_term_bytes(instance.block_n, instance.k_steps);
}
// Blocks of 8 columns of weights whose pairs are contiguous channels: 16 bytes of results.
inline constexpr int32_t nhwc_interleaved(int32_t element) { return 8 / element; }

// Minimum number of result channels that a CTA of a cluster stores.
inline constexpr int32_t nhwc_least_share(int32_t element) { return 8 * nhwc_interleaved(element); }
// Bytes of the accumulators of a tile, or of a part.
inline constexpr int32_t nhwc_sum_bytes(int32_t blocks, int32_t block_n) {
  return 64 * kNhwcConsumers * blocks * block_n * 4;
}

// Bytes of all partial accumulators. The counters of the split tiles follow them.
inline constexpr int64_t nhwc_part_sums_bytes(int32_t blocks, const NhwcTile& plan) {
  return plan.split_tiles * plan.k_splits * nhwc_sum_bytes(blocks, plan.block_n);
}

// Bytes of a position's results in one box that is stored through shared memory.
inline constexpr int32_t nhwc_staged_row_bytes(int32_t block_n, int32_t element) {
  return block_n * element < 128 ? block_n * element : 128;
}
inline constexpr int32_t nhwc_staged_bytes(int32_t blocks, int32_t block_n, int32_t element) {
  return kNhwcStagedBuffers * 64 * kNhwcConsumers * blocks * nhwc_staged_row_bytes(block_n, element);
}

// Stores by rows: channels in shared memory at a time (all channels if W phases are interleaved), and the pitch in
// elements. In NCHW it is the pitch of a channel with all positions of a tile, `scale_w` apart; in channels_last the
// pitch of a position. A warp stores eight positions of four channels, with few bank conflicts.
inline constexpr int32_t kNhwcRowChannels = 32;
inline constexpr int32_t nhwc_row_pitch(bool channels_last, int32_t positions, int32_t scale_w, int32_t element) {
  return channels_last ? kNhwcRowChannels + 4 / element : (positions * scale_w + 5) / 8 * 8 + 2;
}
inline constexpr int32_t nhwc_rows_bytes(bool channels_last, int32_t positions, int32_t channels, int32_t pitch,
                                         int32_t element) {
  return (channels_last ? positions : channels) * pitch * element;
}

// Weights with contiguous source channels (gradient in channels_last) need no packing. Tensor maps copy blocks of this
// many result channels of a tap in the order of the weights' columns, and round float32 to TF32.
inline constexpr int32_t nhwc_direct_channels(int32_t element) { return 8 * nhwc_interleaved(element); }

// Distance in the box, in places, between groups of eight contiguous positions, if it is the same in all blocks of 64
// positions, as matrix descriptors require; otherwise 0. Gathered float32 is not rounded to TF32, so wgmma reads it
// from registers, like the terms of tf32x3.
inline int32_t nhwc_group_places(const NhwcInstance& instance, const NhwcTile& plan) {
  if (instance.precision == Precision::kTf32x3 || (plan.gathers && instance.precision == Precision::kTf32)) return 0;
  // Whether the next image follows directly after the tile's rows of this image, or there is only one.
  const bool rows_go_on = plan.tile_n == 1 || plan.box_h == plan.tile_h;
  if (plan.tile_w % 64 == 0 || (plan.box_w == plan.tile_w && rows_go_on)) return 8;
  return plan.tile_w == 8 && (rows_go_on || plan.tile_h % 8 == 0) ? plan.box_w : 0;
}

// Tiles along each digit of a tile's index.
struct NhwcGrid {
  int32_t channel_tiles;  // per group
  int32_t phases_w, phases_h, w_tiles, h_tiles;
  int64_t image_tiles;
};
NhwcGrid make_nhwc_grid(const ConvTProblem& problem, const TapProgram& program, const NhwcTile& plan);

// The taps of a run, and their box of the source.
struct NhwcWindow {
  int32_t column, row;  // source coordinates of the box of position (0, 0)
  int32_t extra_w, extra_h;  // maximum shift between the taps' windows
  int32_t first_column, first_row;  // place in the box that tap (0, 0) reads for position (0, 0)
};
// Elements between consecutive taps of the weight if its taps form one dimension; otherwise 0.
int64_t nhwc_tap_stride(const ConvTProblem& problem);

NhwcWindow make_nhwc_window(const TapProgram& program, int32_t run);

}  // namespace convt
