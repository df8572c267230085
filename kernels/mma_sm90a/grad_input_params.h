// What a kernel of the gradient of the input is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "mma_sm90a/grad_input_layout.h"

namespace convt::mma_sm90a {

struct GradInputParams : MmaGradInputLayout {
  const void* source;  // grad_output: [batch, groups * group_co, h.out, w.out], columns or channels are neighbours
  const void* source_end;  // behind its last element
  const void* weight;  // any strides
  void* result;  // [batch, groups * group_ci, h.in, w.in], columns or channels are neighbours
  // Vectors: whether bulk copies can bring the operand so that lanes read its vectors; otherwise elements are copied.
  bool bulk_source;
  bool bulk_weights;
};

}  // namespace convt::mma_sm90a
