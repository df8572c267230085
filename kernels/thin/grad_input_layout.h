// The gradient of the input of a thin layer: which results a CTA owns, and where its data lie in shared memory. One
// definition for the planner (is it legal? does it fit?), launch/ and the kernel (thin/grad_input.cuh).
//
// Positions are elements (ih, iw) of the result. Tap k of position q reads row, or column,
//     q * stride - padding + k * dilation
// of grad_output. Rows are staged as they are in memory. Only rows that a tap reads are: in either of two ways,
// whichever needs fewer,
//     window:  every gcd(stride, dilation)-th row, shared by all positions,
//     apart:   kernel rows for each row of positions.
// Both put tap k of row q into slot q * slot_q + k * slot_k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/divisor.h"
#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The tile for the gradient of the input.
struct ThinGradInputTile {
  int32_t instance;      // index into kThinGradInputInstances
  int32_t tile_h;        // positions: elements of the result; a multiple of the instance's
  int32_t tile_w;        // a multiple of 32
  int32_t block_ci;      // result channels of a CTA, per group, a multiple of the instance's
  int32_t block_groups;  // groups of a CTA; more than 1 only with all channels of each
  int32_t chunk_co;      // channels of grad_output in a stage, per group
  int32_t stages;        // pipeline depth
  int32_t tiles_per_block;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_ci", block_ci);
    field("block_groups", block_groups);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("tiles_per_block", tiles_per_block);
    field("chunk_co", chunk_co);
    field("stages", stages);
  }
};

inline constexpr int32_t kMaxThinGradientTaps = 16;  // of an axis

// Threads of a CTA: the registers of an SM divided by those of a thread, which grow with its sums.
CONVT_HOST_DEVICE constexpr int32_t max_thin_gradient_threads(int32_t sums) { return sums > 32 ? 512 : 256; }
CONVT_HOST_DEVICE constexpr int32_t min_thin_gradient_blocks(int32_t sums) { return sums > 32 ? 1 : 3; }

// Everything about a launch that follows from the problem and the plan, but pointers and strides of operands.
struct ThinGradInputLayout {
  Axis h;
  Axis w;
  int32_t groups;
  int32_t group_ci;
  int32_t group_co;

  // Tiles of tile_h x tile_w positions of one image; a pass is what else tells CTAs apart: groups and channels.
  int32_t tile_h;
  int32_t tile_w;
  int32_t tiles_h;
  int32_t tiles_w;
  int32_t num_tiles;
  int32_t tiles_per_block;
  int32_t block_ci;
  int32_t block_groups;
  int32_t ci_tiles;
  int32_t passes;
  int32_t warps_w;   // warps that share (group, channels), each 32 columns x the instance's positions
  int32_t warps_ci;  // of a group
  int32_t threads;
  int64_t num_blocks;

  // Shared memory: [weights, float32, [block_groups][group_co][tap][block_ci]][stages]. A stage is
  // [block_groups][chunk_co][slot][columns] with pitches that launch/ chooses up to these.
  int32_t chunk_co;
  int32_t chunks;  // stages of a tile
  int32_t stages;
  int32_t slots;
  int32_t slot_q;
  int32_t slot_k;
  bool apart;
  int32_t row_step;  // of a window: rows from one slot to the next
  int32_t columns;   // of a row
  int32_t most_pitch;
  int32_t most_channel_pitch;
  int32_t stage_begin;  // bytes
  int32_t stage_bytes;
  int32_t shared_bytes;
};

// Elements of a 16-byte vector.
inline int32_t vector_elements(DataType dtype) { return static_cast<int32_t>(16 / element_bytes(dtype)); }

// The smallest number from `least` on that is congruent to `residue` modulo a power of two.
CONVT_HOST_DEVICE inline int32_t congruent_from(int32_t least, int64_t residue, int32_t modulus) {
  return least + static_cast<int32_t>((residue - least) & (modulus - 1));
}

// Which slots of a stage have the rows of grad_output that `kernel_h` tap rows read for `rows` rows of positions, in
// the way of the two that needs fewer; `columns`: of each row. False where they are far beyond what fits.
template <typename Layout>
bool lay_out_slots(int64_t rows, int32_t kernel_h, int64_t columns, Layout* layout) {
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;
  constexpr int64_t kMostRows = 1 << 28;  // their numbers stay within 32 bits
  const Axis& h = layout->h;
  if (rows > kMostSlots || rows * h.stride > kMostRows) return false;
  const int32_t step = greatest_common_divisor(h.stride, h.dilation);
  const int64_t window = ((rows - 1) * h.stride + int64_t{kernel_h - 1} * h.dilation) / step + 1;
  const int64_t apart = rows * kernel_h;
  if (std::min(window, apart) > kMostSlots || columns > kMostColumns) return false;
  layout->apart = apart < window;
  layout->slots = static_cast<int32_t>(layout->apart ? apart : window);
  layout->slot_q = layout->apart ? kernel_h : h.stride / step;
  layout->slot_k = layout->apart ? 1 : h.dilation / step;
  layout->row_step = step;
  layout->columns = static_cast<int32_t>(columns);
  // Of a single row of positions, or of taps, the next one may be anywhere.
  return layout->slot_q <= kMostSlots && layout->slot_k <= kMostSlots;
}

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_grad_input_layout(const ConvTProblem& problem, const ThinGradInputTile& plan,
                                 ThinGradInputLayout* layout);

// How rows lie in a stage: elements from a slot, a row of positions, a channel to the next. They are congruent to the
// distances in memory modulo 16 bytes, so that whole vectors can be copied wherever a row begins.
struct ThinPitches {
  int32_t slot;      // of a window; of slots apart, from a tap to the next
  int32_t position;  // from a row of positions to the next
  int32_t tap;       // from a row of taps to the next
  int32_t channel;
};

// Of slots that lay_out_slots() laid out for so many rows.
template <typename Layout>
ThinPitches make_thin_pitches(const Layout& layout, const ConvTProblem& problem, int32_t rows, int32_t kernel_h) {
  const int32_t elems = vector_elements(problem.dtype);
  const int64_t row = problem.y_stride[2] % elems;  // all that pitches must be congruent to
  const int32_t least = layout.columns + 2 * (elems - 1);
  ThinPitches pitches;
  if (layout.apart) {
    pitches.slot = congruent_from(least, layout.h.dilation * row, elems);
    pitches.tap = pitches.slot;
    pitches.position = congruent_from(kernel_h * pitches.slot, layout.h.stride * row, elems);
  } else {
    pitches.slot = congruent_from(least, layout.row_step * row, elems);
    pitches.tap = layout.slot_k * pitches.slot;
    pitches.position = layout.slot_q * pitches.slot;
  }
  const int32_t all = layout.apart ? rows * pitches.position : layout.slots * pitches.slot;
  pitches.channel = congruent_from(all, problem.y_stride[1], elems);
  return pitches;
}

}  // namespace convt

namespace convt::thin {

// What a kernel is launched with. Filled by thin/launch.cpp, constant for the whole grid.
struct GradInputParams : ThinGradInputLayout {
  const void* gy;      // [batch, groups * group_co, h.out, w.out], any strides
  const void* weight;  // [groups * group_ci, group_co, h.kernel, w.kernel], any strides
  void* gx;            // [batch, groups * group_ci, h.in, w.in], NCHW or channels_last
  int64_t gy_stride[4];
  int64_t weight_stride[4];
  int64_t gx_stride[4];
  ThinPitches pitches;
  Reciprocal by_slots;
  Reciprocal by_kernel_h;
  Reciprocal by_tiles_w;
  Reciprocal by_tiles_h;
  int32_t load_lanes_log2;  // threads that copy one row together
  int32_t vector;           // columns that a thread reads at once: 1, 2 or 4
  bool copy_vectors;        // columns are neighbours in memory
};

}  // namespace convt::thin
