// What the kernel of the gradient of the weight is launched with. Filled by patch_sm90a/grad_weight_launch.cpp,
// constant for the whole grid.
#pragma once

#include <cuda.h>

#include "patch_sm90a/grad_weight_layout.h"

namespace convt::patch_sm90a {

struct GradWeightParams {
  CUtensorMap x;   // [image][channel][row][column] or, of whole rows, [image][channel][1][pixel]
  CUtensorMap gy;  // [image][channel][row of pixels][tap row][column]
  PatchGradWeightLayout layout;
  float* slabs;  // [chunk][channels][group_co][kernel_h][kernel_w]
  float* bias_slabs;  // [chunk][kernel_h][channels of grad_output], or null where nobody asks for them
};

}  // namespace convt::patch_sm90a
