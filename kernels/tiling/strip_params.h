// What the loader of strips (tiling/strip_loader.cuh) reads of a kernel's parameters, constant for the whole grid.
// Filled by fill_strip_params() (tiling/strip_launch.h).
#pragma once

#include "plan/fast_divmod.h"
#include "tiling/strips.h"

namespace convt::tiling {

// An operand as the loader sees it.
struct StripOperand {
  const void* elements;  // [batch, channels, rows, columns]
  int64_t stride[4];     // elements
  const void* end;       // behind its last element
};

struct StripParams : StripLayout {
  StripOperand x;   // [batch, groups * group_ci, h.in, w.in], any strides
  StripOperand gy;  // [batch, groups * group_co, h.out, w.out], any strides
  float* slabs;      // [chunks][groups * group_ci, group_co, h.kernel, w.kernel], contiguous
  StripPitches pitches;
  FastDivmod by_units_of_strip;
  FastDivmod by_strips;
  FastDivmod by_x_rows;    // rows of pixels of a stage
  FastDivmod by_slots;
  FastDivmod by_block_kh;
  FastDivmod by_columns_step;  // columns of grad_output from a step of 32 pixels to the next
  int32_t loaders;    // warps that copy a stage, a divisor of the CTA's
  int32_t x_loaders;  // those of them that copy the input
  int32_t strip_log2;  // of a strip narrower than 32
  bool bulk;         // both operands' columns are neighbours in memory
  bool zero_borders;  // of grad_output's bulk rows: what a pixel of the stage would read beyond the tensor is zero
  int32_t taps_w;     // of a row of taps, of the CTA
  bool merged_rows;  // a strip's rows of the input are one run in memory, and so in a stage
};

}  // namespace convt::tiling
