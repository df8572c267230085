// What the patch engine's kernel for weights as they are is launched with. Filled by patch_sm90a/direct_launch.cpp,
// constant for the whole grid.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "patch_sm90a/direct_layout.h"

namespace convt::patch_sm90a {

struct DirectParams : PatchDirectLayout {
  // The weights as dimensions [box][channel][column], zeros outside of them. A box is a stage: [boxes of a tile][128
  // bytes of channels][128 bytes of columns], with the swizzle of 128 bytes.
  CUtensorMap weights;
  const void* source;  // [batch, k_channels, h.in, w.in]
  const void* bias;    // [channels of the result], contiguous, or null
  void* result;        // [batch, channels, h.out, w.out]
  int64_t source_stride[2];  // elements, of images and channels; positions are neighbours
  int64_t result_stride[3];  // of images, channels, rows; columns are neighbours
  bool source_pairs;         // the source is read two positions at a time
  int32_t vector;  // elements of a row of the result that are stored at once: of two or four columns, one or more
                   // neighbouring positions
};

}  // namespace convt::patch_sm90a
