// What a kernel of the gradient of the weight is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "problem/problem.h"
#include "simt/grad_weight_layout.h"

namespace convt::simt {

struct GradWeightParams {
  const void* x;   // [batch, c_in, h_in, w_in], any strides
  const void* gy;  // [batch, c_out, h_out, w_out], any strides
  void* slabs;     // [chunks * splits][c_in, k_h, k_w, c_out / groups], contiguous, of the accumulator's type
  ConvTProblem problem;
  SimtGradWeightTile plan;
  GradWeightGrid grid;
  GradWeightLayout layout;
  int32_t group_c_in;   // c_in / groups
  int32_t group_c_out;  // c_out / groups
};

}  // namespace convt::simt
