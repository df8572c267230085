// What a depthwise kernel is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "depthwise/layout.h"

namespace convt::depthwise {

struct DepthwiseParams : ThinDepthwiseLayout {
  void* y;             // [batch, channels, h.out, w.out]: the result of the forward pass, else grad_output
  void* x;             // [batch, channels, h.in, w.in]: the result of the gradient of the input, else an operand
  const void* weight;  // [channels, 1, h.kernel, w.kernel]: not of the gradient of the weight
  const void* bias;    // [channels] or null: of the forward pass
  float* slabs;        // [batch * chunks * strips][channels, h.kernel, w.kernel]: of the gradient of the weight
  int64_t y_stride[4];
  int64_t x_stride[4];
  int64_t weight_stride[4];
  bool y_vectors;  // a lane's columns of y are one vector, wherever it begins
  bool x_vectors;
};

}  // namespace convt::depthwise
