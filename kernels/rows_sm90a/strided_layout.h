// Plans of the strided engine (rows_sm90a/): 4 x 4 and 3 x 3 kernels of stride 2 and padding 1 in NCHW, which double
// an image, and their gradients of the input.
//
// Positions are pixels of the smaller image, and the rows of a matrix product whose first operand, windows of the
// source, is read into registers from the source as it lies in memory. A thread has four neighbouring positions of a
// row, a quad. An image is cut into strips of columns; the quads of a strip are one sequence, row after row, and a tile
// is a piece of it or, where images are small, several whole images.
// Called by: plan/families.h, rows_sm90a/launch.cpp, the kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "rows_sm90a/instances.h"

namespace convt {

// The strided engine's tile.
struct StridedTile {
  int32_t instance;  // index into kStridedInstances
  int32_t block_n;  // result channels
  int32_t splits;  // CTAs that share a tile, each with some of the source's channels
  bool alternate;  // the warpgroups of a CTA share a tile, each every other stage
  int32_t strip_width;  // columns of positions
  int32_t tile_images;  // whole ones, or 1 of which a tile has some quads
  int32_t tile_quads;  // of four neighbouring positions
  bool whole_images;  // of the source in a stage: an image of a channel is one row of it
  bool image_copies;  // which is too long for a tensor map's box, and a copy of its own
  int32_t box_rows, pitch, box_lead;  // rows, elements of a row, of these before the first
  int32_t num_chunks;  // stages
  int32_t stage_bytes, source_slots, weight_slots;
  int32_t weights_begin, zeros_begin, barriers_begin;  // in shared memory
  int64_t num_tiles;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_n", block_n);
    field("splits", splits);
    field("alternate", alternate);
    field("strip_width", strip_width);
    field("tile_images", tile_images);
    field("tile_quads", tile_quads);
    field("whole_images", whole_images);
    field("image_copies", image_copies);
    field("num_tiles", num_tiles);
    field("num_chunks", num_chunks);
    field("source_slots", source_slots);
    field("weight_slots", weight_slots);
  }
};

inline constexpr int32_t kStridedConsumers = 2;  // warpgroups that multiply
inline constexpr int32_t kStridedThreads = 128 * (kStridedConsumers + 1);
inline constexpr int32_t kStridedQuads = 32 * kStridedConsumers;  // of a tile
// Where warpgroups alternate in stages they have the same quads.
inline constexpr int32_t strided_quads(bool alternate) {
  return alternate ? kStridedQuads / kStridedConsumers : kStridedQuads;
}
inline constexpr int32_t kStridedStripWidth = 64;  // positions, at most
inline constexpr int32_t kStridedMostSplits = 4;  // CTAs that share a tile
inline constexpr int32_t kStridedZeroBytes = 64;  // what is read of a row beside the source
inline constexpr int32_t kStridedLoaders = 96;  // threads that copy a source no tensor map can describe

// Source columns, and rows, from a position to the next.
inline constexpr int32_t strided_step(StridedForm form) { return form == StridedForm::kOutput ? 1 : 2; }
// A 3 x 3 kernel has phases of 1, 2, 2 and 4 taps: a tile has all of them, otherwise both W phases of one H phase.
inline constexpr bool strided_all_phases(StridedForm form, int32_t kernel) {
  return form == StridedForm::kOutput && kernel == 3;
}
// Accumulators of a position for a channel.
inline constexpr int32_t strided_phases(StridedForm form, int32_t kernel) {
  return form == StridedForm::kGather ? 1 : strided_all_phases(form, kernel) ? 4 : 2;
}
// Rows of the source that a position reads, and the first of them for a position of row 0 (of the second H phase one
// later).
inline constexpr int32_t strided_rows(StridedForm form, int32_t kernel) {
  return form == StridedForm::kOutput ? 2 : kernel;
}
inline constexpr int32_t strided_first_row(StridedForm form, int32_t kernel) {
  return strided_all_phases(form, kernel) ? 0 : -1;
}
// Rows whose weights are in a slot.
inline constexpr int32_t strided_slot_rows(StridedForm form) { return form == StridedForm::kOutput ? 2 : 1; }
inline constexpr int32_t strided_slot_taps(StridedForm form, int32_t kernel) {
  return form == StridedForm::kGather ? kernel : kernel == 3 ? 9 : 8;
}
// Bytes that CTAs of a cluster, or warpgroups of a CTA, exchange of a tile, at most.
inline constexpr int32_t strided_sum_bytes(StridedForm form, int32_t kernel, int32_t block_n, bool alternate) {
  return 4 * strided_quads(alternate) * block_n * strided_phases(form, kernel) * 4;
}
// A stage is a step of K.
inline constexpr int32_t strided_channels(int32_t element) { return 32 / element; }
// Split operands have a high and a low term.
inline constexpr int32_t strided_tap_bytes(int32_t block_n, bool split) { return (split ? 64 : 32) * block_n; }

// Tiles along each digit of a tile's number.
struct StridedGrid {
  int32_t channel_tiles;
  int32_t phase_tiles;  // H phases of the output
  int32_t groups;
  int32_t strip_tiles;  // of a strip of an image
  int32_t strips;
  int64_t image_tiles;
};
StridedGrid make_strided_grid(const ConvTProblem& problem, const StridedTile& plan);

}  // namespace convt
