// The gradient of the weight on warpgroup products: which pixels and weights a CTA has, and where its operands lie in
// shared memory. One definition for the planner, the launch and the kernels (rows.cuh, pixels.cuh).
//
// GEMM: rows are 64 output channels of one tap, or 32 or 16 of each of two or four, columns input channels, K is
// pixels: the positions of the input. A stage is a *unit* of pixels: a strip of one row of an image, or of several
// rows.
//
// Rows: its pixels of the input are rows of 128 bytes as products want their second operand, [128 bytes of
// pixels][row][input channel]. Rows of grad_output lie in the same way, [128 bytes of columns][row][output channel],
// with what the unit's last taps read beside its columns: a tap is a shift of what a thread loads, and the first
// operand of a product of its own, in registers.
//
// Pixels: rows of 128 bytes are channels, [64 or 32 input channels][row][column] and [as many output
// channels][box][row][pixel]. A box has every stride-th column of grad_output, from one of the first taps on: a tap is
// a box and a shift by pixels.
//
// Called by: families/families.h, the plans, launch and kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate_sm90a/instances.h"
#include "problem/problem.h"
#include "reduce/channels.h"

namespace convt {

struct CorrelateTile {
  int32_t instance;  // index into kCorrelateInstances
  int32_t co_parts, kh_parts, kw_parts;  // what the warps of a CTA share
  int32_t rows, columns;  // of pixels, of a unit
  int32_t slots;  // stages in shared memory
  int32_t units_per_chunk;
  int32_t images;  // of a launch
  bool packs_x, packs_gy;  // a kernel lays the tensor out first

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("co_parts", co_parts);
    field("kh_parts", kh_parts);
    field("kw_parts", kw_parts);
    field("rows", rows);
    field("columns", columns);
    field("slots", slots);
    field("units_per_chunk", units_per_chunk);
    field("images", images);
    field("packs_x", packs_x);
    field("packs_gy", packs_gy);
  }
};

inline constexpr int32_t kCorrelateRows = 64;  // of a product

inline constexpr int64_t kCorrelateMost = int64_t{1} << 30;
inline constexpr int32_t kCorrelateLeastSlots = 2, kCorrelateMostSlots = 8;

inline constexpr int32_t kCorrelateBarrierBytes = 32;  // of a slot: full and empty, and for transposed pixels
inline constexpr int32_t kCorrelateOnesBytes = 256;  // eight columns of ones, the second operand of half a step of K

inline constexpr int32_t correlate_threads(int32_t consumers) { return 128 * (consumers + 1); }

struct CorrelateLayout {
  int32_t group_ci, group_co, channels;  // of the input: of a group, of all
  int32_t x_group, gy_group;  // channels from a group of an operand to the next, as it lies
  Axis h, w;
  int32_t co_tiles, ci_tiles, kw_tiles, kh_tiles;  // fastest first; then groups
  int32_t co_parts, kh_parts, kw_parts;
  int32_t co_rows;  // output channels of a part: 64, or 32 or 16 where a warpgroup's products have several parts
  int32_t passes;  // CTAs of a chunk
  int32_t num_units, units_per_chunk, chunks;
  int32_t strips, row_units;  // units of a row, and of an image
  int32_t rows, columns;  // of a unit
  int32_t steps;  // of K, of a unit's row, or of two where these share steps

  int32_t gy_boxes, gy_box_columns;  // of grad_output, of a row of columns
  int32_t gy_pitch;  // rows: bytes of a channel of a box; pixels: of a row of one
  int32_t gy_rows, gy_row_step;  // rows of a stage, and how far these are from each other in the image
  int32_t position_rows, kernel_rows;  // of these, from a row of pixels and from a row of taps to the next
  int32_t x_bytes, gy_bytes;  // of a stage
  int32_t copied_bytes;
  int32_t stage_bytes, slots, barriers_begin;  // in shared memory

  // The gradient of the bias: the first of as many taps as the strides whose pixels are added up (problem/phases.h),
  // and how many rows of sums a chunk has, 0 where it is not given: [tap along H][run of a warp's taps along W][CTA of
  // those that take turns].
  int32_t bias_kh, bias_kw;
  int32_t bias_rows, bias_runs, bias_turns;

  // Rows.
  int32_t boxes;  // of the input, of a row
  bool flat;  // rows of grad_output begin between 16 bytes, and are copied as parts of planes
  bool pairs_rows;  // pixels: a step of K, of sixteen, is eight pixels of each of two rows

  // Pixels.
  // Of float32, in a stage: rows of 128 bytes of pixels, [32 pixels][input channel].
  int32_t transposed_begin, transposed_bytes;
  int32_t gy_pixel_bytes;  // of a box
  int32_t gy_blocks;  // of channels, which have boxes of their own
  int32_t gy_box_bytes;
  int32_t tap_period, tap_shift;  // taps that have other boxes, and pixels from one tap of a box to the next
  int32_t ones_begin;  // in shared memory, of halves

  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// Everything that follows from a plan's tile; false where it is not legal. Does not ask whether the device has so much
// shared memory.
bool make_correlate_layout(const ConvTProblem& problem, const CorrelateTile& tile, CorrelateLayout* layout);

// An operand as the kernel of a form reads it, packed or as it lies.
struct CorrelateOperand {
  int64_t channels, stride[4];  // elements
  int32_t rows, columns;
  int32_t group;  // channels from a group to the next
  int64_t packed_bytes;  // of an image; 0: as it lies
};
CorrelateOperand correlate_operand(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs);

// Whether a tensor map describes it, and whether the kernel needs it packed: it reads rows of grad_output as parts of
// planes too.
bool correlate_describes(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs);
bool correlate_packs(const ConvTProblem& problem, CorrelateForm form, bool is_x);

// Whether a warpgroup's products can have these parts. Of pixels of halves they are rows of taps, a distance that the
// products are told.
bool correlate_can_share(const CorrelateInstance& instance, int32_t parts, int32_t co_parts, int32_t kh_parts);

// What a layout says of the bias, from all the rest of it.
void lay_correlate_bias(const ConvTProblem& problem, const CorrelateInstance& instance, CorrelateLayout* layout);

// What of grad_output no counted tap has: its first rows, and the first columns of the others.
struct CorrelateRest {
  ChannelSum sum;
  int64_t begins;  // elements
};
std::vector<CorrelateRest> correlate_rests(const ConvTProblem& problem);

// Rows of c_out sums of these that are added to those of all chunks; 0 where no layout gives the bias.
int64_t correlate_rest_rows(const ConvTProblem& problem);

// 32-bit reads of rows of grad_output for a thread's row and pixels of a step.
int32_t correlate_words(const CorrelateInstance& instance);

}  // namespace convt
