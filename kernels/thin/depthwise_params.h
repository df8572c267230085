// What a depthwise kernel is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "plan/thin_depthwise.h"

namespace convt::thin {

struct DepthwiseParams : ThinDepthwiseLayout {
  const void* gy;  // [batch, channels, h.out, w.out], any strides
  const void* x;   // [batch, channels, h.in, w.in], any strides: of the gradient of the weight
  const void* weight;  // [channels, 1, h.kernel, w.kernel], any strides: of the gradient of the input
  void* gx;        // [batch, channels, h.in, w.in], NCHW or channels_last
  float* slabs;    // [batch * chunks * strips][channels, h.kernel, w.kernel]
  int64_t gy_stride[4];
  int64_t x_stride[4];  // of x or gx
  int64_t weight_stride[4];
  bool gy_vectors;  // four columns of gy are one vector, wherever a lane begins
  bool x_vectors;   // a lane's columns of x or gx are
};

}  // namespace convt::thin
