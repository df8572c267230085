// What the kernels of the portable engine are launched with. Filled by portable/launch.cpp, constant for the whole
// grid.
#pragma once

#include "epilogue/program.h"
#include "portable/grad_weight_layout.h"
#include "portable/layout.h"

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

}  // namespace convt::portable
