// The gradient of the weight on warpgroup products: which pixels and weights a CTA has, and where its operands lie in
// shared memory. One definition for the planner, the launch and the kernel (correlate_sm90a/kernel.cuh).
//
// GEMM: rows are 64 output channels of one tap, columns input channels, K is pixels: the positions of the input. A
// stage is a *unit* of pixels: a strip of one row of an image, or of several rows. Its pixels of the input are rows of
// 128 bytes as products want their second operand, [128 bytes of pixels][row][input channel]. Rows of grad_output lie
// in the same way, [128 bytes of columns][row][output channel], with what the unit's last taps read beside its columns:
// a tap is a shift of what a thread loads, and the first operand of a product of its own, in registers.
//
// Called by: plan/families.h, the plans, launch and kernel, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "correlate_sm90a/instances.h"
#include "problem/problem.h"

namespace convt {

struct CorrelateTile {
  int32_t instance;  // index into kCorrelateInstances
  int32_t co_parts, kh_parts, kw_parts;  // what the warpgroups of a CTA share
  int32_t rows;  // of pixels, of a unit
  int32_t steps;  // of K, of a unit's row
  int32_t slots;  // stages in shared memory
  int32_t units_per_chunk;
  bool packs_x, packs_gy;  // a kernel makes rows of the tensor first that begin on 16 bytes

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("co_parts", co_parts);
    field("kh_parts", kh_parts);
    field("kw_parts", kw_parts);
    field("rows", rows);
    field("steps", steps);
    field("slots", slots);
    field("units_per_chunk", units_per_chunk);
    field("packs_x", packs_x);
    field("packs_gy", packs_gy);
  }
};

inline constexpr int32_t kCorrelateRows = 64;  // output channels of a warpgroup

inline constexpr int32_t correlate_threads(int32_t consumers) { return 128 * (consumers + 1); }

struct CorrelateLayout {
  int32_t group_ci, group_co, channels;  // of the input: of a group, of all
  Axis h, w;
  int32_t co_tiles, ci_tiles, kw_tiles, kh_tiles;  // fastest first; then groups
  int32_t co_parts, kh_parts, kw_parts;
  int32_t passes;  // CTAs of a chunk
  int32_t num_units, units_per_chunk, chunks;
  int32_t strips, row_units;  // units of a row, and of an image
  int32_t rows, steps, pixels;  // of a unit; pixels of its row

  int32_t boxes;  // of the input, of a row
  bool flat;  // rows of grad_output begin between 16 bytes, and are copied as parts of planes
  int32_t gy_boxes, gy_box_columns;  // of a row of grad_output
  int32_t gy_pitch;  // bytes of a channel of a box
  int32_t gy_rows, gy_row_step;  // rows of a stage, and how far these are from each other in the image
  int32_t position_rows, kernel_rows;  // of these, from a row of pixels and from a row of taps to the next
  int32_t x_bytes, gy_bytes;  // of a stage
  int32_t stage_bytes, slots, barriers_begin;  // in shared memory

  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// The problem whose input or grad_output has packed rows in the place of its own.
ConvTProblem with_packed_rows(const ConvTProblem& problem, bool packs_x, bool packs_gy);

// Of a tensor with such rows.
inline int64_t packed_rows_bytes(const ConvTProblem& packed, const int64_t* stride) {
  return packed.batch * stride[0] * element_bytes(packed.dtype);
}

// Everything that follows from a plan's tile; false where it is not legal. Does not ask whether the device has so much
// shared memory.
bool make_correlate_layout(const ConvTProblem& problem, const CorrelateTile& tile, CorrelateLayout* layout);

}  // namespace convt
