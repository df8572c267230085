// What the kernels of the portable engine are launched with. Filled by portable/launch.cpp, constant for the whole
// grid.
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
  int64_t first_result;  // of this launch's images, in elements from the first of all
  bool rounds_source;  // float32 that nobody has rounded to TF32 yet
  float* slabs;  // [part of K][tile][sums of each thread]; null where K is whole
  bool adds_slabs;  // instead of multiplying
  epilogue::Program steps;
};

struct GradWeightParams : PortableGradWeightLayout {
  const void* g_x;  // pixels
  const void* g_gy;  // pixels
  float* slabs;
  bool rounds_x, rounds_gy;  // float32 that nobody has rounded to TF32 yet
};

// What pack_weights() is launched with. A CTA packs a few vectors of K's channels for some columns, which are pairs of
// a result channel and a tap.
struct PackWeightsParams {
  const void* weight;  // any strides
  void* packed;
  int64_t stride[4];  // elements: from a summed channel, a result channel, kh, kw to the next
  int64_t group_stride;
  Axis h, w;
  int32_t tap_step_h, tap_step_w;  // from a tap of a phase to its next
  int32_t phases_h, phases_w;
  int32_t k_channels, n_channels;  // of a group
  int32_t channel_vectors, slot_vectors;
  bool k_outer, taps_inner;  // in memory: whether a result channel is nearer than a summed one, and taps nearer still
  FastDivmod by_n, by_taps;  // of a CTA's columns: result channels, taps of each
  FastDivmod by_k_tiles, by_n_tiles, by_tap_tiles, by_kernel_w;
};

}  // namespace convt::portable
