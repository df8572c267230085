// Tiles of the portable forward pass and gradient of the input. Shared by the planner, the launcher, the kernel and the
// tests.
//
// GEMM rows are the positions of one phase of the result, of all images. Columns are the result channels of a group. K
// is (tap row, tap, vector of channels) of the phase's taps, in stages of four vectors. So a phase multiplies only its
// own taps, and few channels leave no gaps in a stage. In packed weights a result channel's K of a phase is contiguous.
// If tiles are few, several CTAs split the K of one tile, and their accumulators are added in the order of K. Must not
// know: torch, CUDA.
#pragma once

#include <cstdint>

#include "pack/pixels.h"
#include "plan/tile.h"
#include "portable/instances.h"
#include "problem/epilogue.h"
#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

struct PortableTile {
  int32_t instance;  // index into kPortableInstances
  int32_t stages;  // pipeline stages
  int32_t splits;  // splits of K among CTAs
  bool packs_source;  // the source does not have the layout of pixels and is packed first
  int32_t images;  // images per launch; a large batch takes several launches, because its source is packed in parts

  CONVT_TILE_FIELDS(stages, splits, packs_source, images)
};

inline constexpr int32_t kPortableStageVectors = 4;  // vectors of K per stage
inline constexpr int32_t kPortableRowBytes = 16 * kPortableStageVectors;  // bytes of a GEMM row or column per stage
inline constexpr int32_t kPortableStoredRows = 32;  // GEMM rows that a warp writes to shared memory per store pass

// Pitch of staged results in float32 elements: per channel, or in channels_last per position. It avoids bank conflicts
// of writes and reads.
constexpr int32_t portable_staged_pitch(int32_t warp_n, bool channels_last) {
  return channels_last ? warp_n + 8 : kPortableStoredRows + 4;
}
constexpr int32_t portable_staged_bytes(int32_t warp_n) {
  const int32_t in_planes = warp_n * portable_staged_pitch(warp_n, false);
  const int32_t in_pixels = kPortableStoredRows * portable_staged_pitch(warp_n, true);
  return 4 * (in_planes > in_pixels ? in_planes : in_pixels);
}

struct PortableLayout {
  Axis h, w;  // of the problem; for a gradient, of the adjoint problem
  int32_t phases_h, phases_w;
  int32_t n_channels;  // per group
  Pixels source;
  int32_t slot_vectors;  // packed vectors per result channel and phase, including room for missing taps
  int32_t images;  // per launch
  int32_t image_rows;  // GEMM rows per image
  int32_t num_rows;  // GEMM rows per launch
  int64_t result_stride[4];
  bool channels_last;  // of the result
  FastDivmod by_columns, by_rows;  // split a GEMM row's index into image, position row, position
  FastDivmod by_n_tiles, by_phases, by_phases_w, by_m_tiles;  // split a tile's index into group, rows, phase, columns
  FastDivmod by_tiles;  // splits a CTA's index into split of K and tile
  int32_t splits, stages, shared_bytes, threads;
  int64_t num_blocks;
  int64_t weight_bytes, source_bytes;  // of packed operands
  int64_t slab_bytes;  // partial accumulators of splits of K; 0 without splits
};

// Returns false if the tile has no kernel for the problem, or if 32 bits cannot represent its values.
bool make_portable_layout(const ConvTProblem& problem, const PortableTile& tile, PortableLayout* layout);

}  // namespace convt

namespace convt::portable {

// Kernel parameters. portable/launch.cpp fills them; they are constant for the whole grid.
struct Params : PortableLayout {
  const void* g_source;  // pixels
  const void* g_weights;  // packed
  const void* bias;  // contiguous, or null
  void* result;
  int64_t first_result;  // element offset of this launch's first image
  bool rounds_source;  // the source is float32 that is not yet rounded to TF32
  float* slabs;  // [split of K][tile][accumulators of each thread]; null without splits
  bool adds_slabs;  // this launch adds slabs instead of multiplying
  epilogue::Program steps;
};

// Parameters of pack_weights(). A CTA packs a few vectors of K's channels for some columns, which are pairs of a result
// channel and a tap.
struct PackWeightsParams {
  const void* weight;  // any strides
  void* packed;
  int64_t stride[4];  // elements: strides of summed channel, result channel, kh, kw
  int64_t group_stride;
  Axis h, w;
  int32_t tap_step_h, tap_step_w;  // steps between the taps of a phase
  int32_t phases_h, phases_w;
  int32_t k_channels, n_channels;  // per group
  int32_t channel_vectors, slot_vectors;
  bool k_outer, taps_inner;  // memory order: summed channels are outside result channels; taps are innermost
  FastDivmod by_n, by_taps;  // split a CTA's column into result channel and tap
  FastDivmod by_k_tiles, by_n_tiles, by_tap_tiles, by_kernel_w;
};

}  // namespace convt::portable
