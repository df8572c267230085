// Parameters of the portable kernels. Set by portable/launch.cpp, constant for the whole grid.
#pragma once

#include "portable/grad_weight_layout.h"
#include "portable/layout.h"
#include "problem/epilogue.h"

namespace convt::portable {

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

struct GradWeightParams : PortableGradWeightLayout {
  const void* g_x;  // pixels
  const void* g_gy;  // pixels
  float* slabs;
  bool rounds_x, rounds_gy;  // the operand is float32 that is not yet rounded to TF32
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
