// Kernel parameters of the strip loader (tiling/strip_loader.cuh), constant for the whole grid. Set by
// fill_strip_params() (tiling/strip_launch.h).
#pragma once

#include "plan/fast_divmod.h"
#include "tiling/strips.h"

namespace convt::tiling {

// An operand of the loader.
struct StripOperand {
  const void* elements;  // [batch, channels, rows, columns]
  int64_t stride[4];     // elements
  const void* end;       // one past the last element
};

struct StripParams : StripLayout {
  StripOperand x;   // [batch, groups * group_ci, h.in, w.in], any strides
  StripOperand gy;  // [batch, groups * group_co, h.out, w.out], any strides
  float* slabs;      // [chunks][groups * group_ci, group_co, h.kernel, w.kernel], contiguous
  StripPitches pitches;
  FastDivmod by_units_of_strip;
  FastDivmod by_strips;
  FastDivmod by_x_rows;    // rows of pixels per stage
  FastDivmod by_slots;
  FastDivmod by_block_kh;
  FastDivmod by_columns_step;  // columns of grad_output per step of 32 pixels
  int32_t loaders;    // warps that copy a stage; divides the CTA's warps
  int32_t x_loaders;  // loading warps for the input
  int32_t strip_log2;  // for a strip narrower than 32
  bool bulk;         // columns of both operands are contiguous
  bool zero_borders;  // zero-fill grad_output's bulk rows where pixels of the stage read outside the tensor
  int32_t taps_w;     // columns of taps per CTA
  bool merged_rows;  // a strip's rows of the input are contiguous in memory and in a stage
};

}  // namespace convt::tiling
