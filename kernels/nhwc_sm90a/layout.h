// Plans of the NHWC engine (nhwc_sm90a/): forward and gradient of the input, of any layout.
//
// Positions are results of one phase, and the rows of a matrix product; channels are neighbours in memory, so that a
// position's 128 bytes of channels are a row of an operand as they lie there. A tile is a box of positions. The taps of
// a phase, or of the gradient those of one residue of the source's coordinates, read a window of the source each,
// shifted against each other: one box holds them all.
// Called by: families/families.h, nhwc_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "nhwc_sm90a/instances.h"
#include "pack/pixels.h"
#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// The NHWC engine's tile.
struct NhwcTile {
  int32_t instance;  // index into kNhwcInstances
  int32_t block_n;  // result channels
  int32_t splits;  // CTAs of a cluster that share a tile, each with some of its stages
  int32_t k_splits;  // of each tile of the last wave, which CTAs multiply one each and add up in memory; 1: none
  int64_t split_tiles;  // tiles of that wave, or 0 where they are whole
  bool direct;  // weights come to shared memory as they are
  bool staged;  // results of channels_last leave by way of shared memory
  bool rows;  // rows of NCHW do, and of channels_last whose pixels begin anywhere
  int32_t interleaved_phases_w;  // W phases of NCHW with interleaved columns, which a CTA computes one after the other
  bool gathers;  // threads bring the source, which no tensor map describes
  bool packs_source;  // a kernel makes pixels of it first, which one does
  bool box_per_tap;  // each tap reads a box of its own
  int32_t tile_w, tile_h, tile_n;  // positions
  int32_t box_w, box_h;  // places of the source for them
  int32_t num_chunks;  // of the source's channels
  int32_t num_windows;  // stages of a chunk
  int32_t stage_bytes, source_slots, weight_slots;
  int32_t slot_taps;  // of a slot of weights
  int32_t weights_begin, staged_begin, barriers_begin, bias_begin;  // in shared memory
  int64_t num_tiles;
  int64_t partials_bytes;  // of the partial sums and their counters, with which the workspace begins

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_n", block_n);
    field("splits", splits);
    field("parts", k_splits);
    field("direct", direct);
    field("staged", staged);
    field("rows", rows);
    field("gathers", gathers);
    field("packs_source", packs_source);
    field("apart", box_per_tap);
    field("tile_n", tile_n);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("num_tiles", num_tiles);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
    field("slot_taps", slot_taps);
  }
};

inline constexpr int32_t kNhwcConsumers = 2;  // warpgroups that multiply
inline constexpr int32_t kNhwcThreads = 128 * (kNhwcConsumers + 1);

// Threads that bring the source where no tensor map describes it, and elements that each of them asks for at once.
// Halves come in words of 4 bytes, to one of two buffers.
inline constexpr int32_t kNhwcGatheringWarps = 3;
inline constexpr int32_t kNhwcGatheringThreads = 32 * kNhwcGatheringWarps;
inline constexpr int32_t kNhwcGatheredWords = 32;
inline constexpr int32_t nhwc_gathered_bytes(int32_t element) {
  return element == 4 ? 0 : 2 * kNhwcGatheredWords * kNhwcGatheringThreads * 4;
}

// A place's row of a stage has whole batches.
inline constexpr bool nhwc_can_gather(int32_t k_steps, int32_t element) {
  return 32 * k_steps % (kNhwcGatheredWords * element) == 0;
}

inline constexpr int32_t kNhwcMostWindows = 64;  // of all phases, or of a tile
inline constexpr int32_t kNhwcMostStagedPhases = 4;
inline constexpr int32_t kNhwcStagedBuffers = 2;
inline constexpr int32_t kNhwcMostSplits = 4;  // CTAs of a cluster that share a tile
inline constexpr int32_t kNhwcMostParts = 8;  // of a tile of the last wave

inline constexpr int32_t nhwc_row_bytes(int32_t k_steps) { return 32 * k_steps; }
// Whether CTAs share tiles, or divide them: those that have an SM for themselves.
inline constexpr bool nhwc_shares_tiles(int32_t ctas) { return ctas == 1; }
// Fragments are made of half of a stage's steps while the other half is multiplied; of one step descriptors alone
// serve.
inline constexpr bool nhwc_reads_boxes_alone(int32_t k_steps) { return k_steps == 1; }
inline constexpr int32_t nhwc_term_bytes(int32_t block_n, int32_t k_steps) { return 32 * k_steps * block_n; }
// In tf32x3 the weights of a tap are high terms, then low terms.
inline constexpr int32_t nhwc_terms(Precision precision) { return precision == Precision::kTf32x3 ? 2 : 1; }
inline constexpr int32_t nhwc_tap_bytes(const NhwcInstance& instance) {
  return nhwc_terms(instance.precision) * nhwc_term_bytes(instance.block_n, instance.k_steps);
}
// Blocks of 8 columns of the weights whose pairs are neighbouring channels: 16 bytes of results.
inline constexpr int32_t nhwc_interleaved(int32_t element) { return 8 / element; }

// Result channels that a CTA of a cluster stores of a tile, at least.
inline constexpr int32_t nhwc_least_share(int32_t element) { return 8 * nhwc_interleaved(element); }
// Bytes of the sums of a tile, or of a part of it.
inline constexpr int32_t nhwc_sum_bytes(int32_t blocks, int32_t block_n) {
  return 64 * kNhwcConsumers * blocks * block_n * 4;
}

// Bytes of the parts' sums, behind which a counter for each divided tile lies.
inline constexpr int64_t nhwc_part_sums_bytes(int32_t blocks, const NhwcTile& plan) {
  return plan.split_tiles * plan.k_splits * nhwc_sum_bytes(blocks, plan.block_n);
}

// Bytes of a position's results that leave in one copy, by way of shared memory.
inline constexpr int32_t nhwc_staged_row_bytes(int32_t block_n, int32_t element) {
  return block_n * element < 128 ? block_n * element : 128;
}
inline constexpr int32_t nhwc_staged_bytes(int32_t blocks, int32_t block_n, int32_t element) {
  return kNhwcStagedBuffers * 64 * kNhwcConsumers * blocks * nhwc_staged_row_bytes(block_n, element);
}

// Of rows: channels that are in shared memory at once, or all where W phases lie between each other; and elements there
// from a channel to the next in NCHW, of all positions of a tile, which are `scale_w` apart, or from a position to the
// next in channels_last. A warp stores eight positions of four channels, in as many banks as can be.
inline constexpr int32_t kNhwcRowChannels = 32;
inline constexpr int32_t nhwc_row_pitch(bool channels_last, int32_t positions, int32_t scale_w, int32_t element) {
  return channels_last ? kNhwcRowChannels + 4 / element : (positions * scale_w + 5) / 8 * 8 + 2;
}
inline constexpr int32_t nhwc_rows_bytes(bool channels_last, int32_t positions, int32_t channels, int32_t pitch,
                                         int32_t element) {
  return (channels_last ? positions : channels) * pitch * element;
}

// Weights whose source channels are neighbours, too (of the gradient in channels_last), need no packing: tensor maps
// copy blocks of so many result channels of a tap in the order of the weights' columns, and round float32 to TF32.
inline constexpr int32_t nhwc_direct_channels(int32_t element) { return 8 * nhwc_interleaved(element); }

// Places of the box from one group of eight neighbouring positions to the next, in all blocks of 64 positions alike, as
// descriptors of operands have them; 0 where groups lie otherwise. Nobody rounds float32 that threads bring, so
// products read that from registers, as they do the terms of tf32x3.
inline int32_t nhwc_group_places(const NhwcInstance& instance, const NhwcTile& plan) {
  if (instance.precision == Precision::kTf32x3 || (plan.gathers && instance.precision == Precision::kTf32)) return 0;
  // Where the image that follows begins right behind the tile's rows of this one, or there is none.
  const bool rows_go_on = plan.tile_n == 1 || plan.box_h == plan.tile_h;
  if (plan.tile_w % 64 == 0 || (plan.box_w == plan.tile_w && rows_go_on)) return 8;
  return plan.tile_w == 8 && (rows_go_on || plan.tile_h % 8 == 0) ? plan.box_w : 0;
}

// Tiles along each digit of a tile's number.
struct NhwcGrid {
  int32_t channel_tiles;  // of a group
  int32_t phases_w, phases_h, w_tiles, h_tiles;
  int64_t image_tiles;
};
NhwcGrid make_nhwc_grid(const ConvTProblem& problem, const TapProgram& program, const NhwcTile& plan);

// The taps of a run, and the box of the source that they read.
struct NhwcWindow {
  int32_t column, row;  // of the source, where the box of position (0, 0) begins
  int32_t extra_w, extra_h;  // places that the taps' windows are apart, at most
  int32_t first_column, first_row;  // of the box, that tap (0, 0) reads for position (0, 0)
};
// From one tap of the weight to the next, in elements, where its taps are one dimension; otherwise 0.
int64_t nhwc_tap_stride(const ConvTProblem& problem);

NhwcWindow make_nhwc_window(const TapProgram& program, int32_t run);

}  // namespace convt
