// What the patch engine's kernel for runs of grad_output is launched with. Filled by patch_sm90a/runs_launch.cpp,
// constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "patch_sm90a/runs_layout.h"

namespace convt::patch_sm90a {

struct RunsParams : PatchRunsLayout {
  // The weights as [channel of the result][K], zeros outside of them. A box is a stage: 128 bytes of K of the rows of a
  // tile, with the swizzle of 128 bytes; float32 is rounded to TF32.
  CUtensorMap weights;
  CUtensorMap lines;  // grad_output as [channel][image][line][column], where runs come by boxes
  const void* source;  // grad_output [batch, channels, h.out, w.out]
  void* result;        // [batch, n_channels, h.in, w.in]
  int64_t source_stride[2];  // bytes, of images and channels
  int64_t result_stride[2];  // elements, of images and channels; positions are neighbours
  int32_t n_channels;
  bool quads;  // four neighbouring positions have their results in one run of memory, and on as many bytes
};

}  // namespace convt::patch_sm90a
