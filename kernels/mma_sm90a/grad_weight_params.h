// What a kernel of the gradient of the weight is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "mma_sm90a/grad_weight_layout.h"
#include "thin/grad_weight_params.h"

namespace convt::mma_sm90a {

// How pixels of an operand come one by one.
struct PixelCopies {
  Divisor by_vectors;    // copies of a pixel
  int32_t lanes_pixels;  // 32 copies in pixels and a rest
  int32_t lanes_vectors;
  int32_t vector_bytes;  // of a copy: 16, 8, 4 or 2
};

// What the thin engine's loader reads, and the rest of the layout.
struct GradWeightParams : thin::GradWeightParams {
  MmaGradWeightLayout layout;
  Divisor by_step_columns;  // columns of grad_output from a step to the next
  PixelCopies x_copies;  // where channels are innermost
  PixelCopies gy_copies;
  Divisor by_block_kw;
};

}  // namespace convt::mma_sm90a
