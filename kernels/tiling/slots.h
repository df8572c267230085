// Slots: the rows of grad_output in a stage of shared memory for a tile's positions. Called by: layouts of thin/,
// gather/ and tiling/strips.cpp.
//
// Tap k of position q reads row q * stride - padding + k * dilation. A stage contains only rows that a tap reads, with
// the layout of global memory. There are two forms; the one with fewer rows is used:
//     window:  every gcd(stride, dilation)-th row, shared by all positions,
//     apart:   separate rows for each row of positions, one per tap row.
// Both put tap k of row q into slot q * slot_q + k * slot_k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// Elements per 16-byte vector.
inline int32_t vector_elements(DataType dtype) { return static_cast<int32_t>(16 / element_bytes(dtype)); }

// The smallest number not below `least` that is congruent to `residue` modulo a power of two.
inline int32_t congruent_from(int64_t least, int64_t residue, int32_t modulus) {
  return static_cast<int32_t>(least + ((residue - least) & (modulus - 1)));
}

// Lays out the slots for `kernel_h` tap rows and `rows` rows of positions, with `columns` columns each. Returns false
// if they far exceed shared memory.
template <typename Layout>
bool lay_out_slots(int64_t rows, int32_t kernel_h, int64_t columns, Layout* layout) {
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;
  constexpr int64_t kMostRows = 1 << 28;  // keeps row coordinates within 32 bits
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
  // With a single row of positions, or of taps, the distance to the next is unused.
  return layout->slot_q <= kMostSlots && layout->slot_k <= kMostSlots;
}

// Pitches of a stage in elements. They are congruent to the strides in memory modulo 16 bytes, so that whole vectors
// can be copied at any alignment of rows.
struct SlotPitches {
  int32_t slot;  // window: per slot; apart: per tap row
  int32_t position;  // per row of positions
  int32_t tap;  // per tap row
  int32_t channel;
};

// Pitches of slots from lay_out_slots() with the same `rows` and `kernel_h`.
template <typename Layout>
SlotPitches make_slot_pitches(const Layout& layout, const ConvTProblem& problem, int32_t rows, int32_t kernel_h) {
  const int32_t elems = vector_elements(problem.dtype);
  const int64_t row = problem.y_stride[2] % elems;  // strides in memory, modulo a vector
  const int32_t least = layout.columns + 2 * (elems - 1);
  SlotPitches pitches;
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
