// How the portable engine (portable/) divides a problem of the forward pass or of the gradient of the input. One
// definition for the planner, the launcher, the kernel and the tests.
//
// Rows of the GEMM are the positions of one phase of the result, of all images. Columns are the result channels of a
// group. K is (tap row, tap, vector of channels) of the phase's taps, in stages of four vectors; so a phase multiplies
// its own taps alone, and few channels leave no gaps in a stage. Weights are packed so that a result channel's K of a
// phase is contiguous. Where there are few tiles, several CTAs share the K of one, and their sums are added in the
// order of K. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "pack/pixels.h"
#include "plan/fast_divmod.h"
#include "portable/instances.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

struct PortableTile {
  int32_t instance;  // index into kPortableInstances
  int32_t stages;  // of K, in shared memory
  int32_t splits;  // of K, among CTAs
  bool packs_source;  // which does not lie as pixels
  int32_t images;  // of a launch: a large batch takes several, as its source is packed in parts

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("stages", stages);
    field("splits", splits);
    field("packs_source", packs_source);
    field("images", images);
  }
};

inline constexpr int32_t kPortableStageVectors = 4;  // of K
inline constexpr int32_t kPortableRowBytes = 16 * kPortableStageVectors;  // of a stage, of a GEMM row or column
inline constexpr int32_t kPortableStoredRows = 32;  // of the GEMM, that a warp stages before it stores them

// From a staged channel to the next, or in channels_last from a staged position to the next, in elements of float32:
// such that lanes neither write nor read a bank twice.
constexpr int32_t portable_staged_pitch(int32_t warp_n, bool channels_last) {
  return channels_last ? warp_n + 8 : kPortableStoredRows + 4;
}
constexpr int32_t portable_staged_bytes(int32_t warp_n) {
  const int32_t in_planes = warp_n * portable_staged_pitch(warp_n, false);
  const int32_t in_pixels = kPortableStoredRows * portable_staged_pitch(warp_n, true);
  return 4 * (in_planes > in_pixels ? in_planes : in_pixels);
}

struct PortableLayout {
  Axis h, w;  // of the problem, of a gradient's adjoint
  int32_t phases_h, phases_w;
  int32_t n_channels;  // of a group
  Pixels source;
  int32_t slot_vectors;  // of a result channel's packed weights of one phase, room for taps that it lacks included
  int32_t images;  // of a launch
  int32_t image_rows;  // of the GEMM
  int32_t num_rows;  // of a launch
  int64_t result_stride[4];
  bool channels_last;  // of the result
  FastDivmod by_columns, by_rows;  // a GEMM row's number: image, position row, position
  FastDivmod by_n_tiles, by_phases, by_phases_w, by_m_tiles;  // a CTA's number: group, rows, phase, columns
  FastDivmod by_tiles;  // a CTA's number: part of K, tile
  int32_t splits, stages, shared_bytes, threads;
  int64_t num_blocks;
  int64_t weight_bytes, source_bytes;  // of what is packed
  int64_t slab_bytes;  // of the sums of parts of K; 0 where K is whole
};

// False where the tile has no kernel for the problem, or 32 bits do not hold the numbers.
bool make_portable_layout(const ConvTProblem& problem, const PortableTile& tile, PortableLayout* layout);

}  // namespace convt
