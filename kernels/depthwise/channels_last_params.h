// What a kernel of depthwise layers in channels_last is launched with. Filled by launch/, constant for the whole grid.
#pragma once

#include "depthwise/channels_last_layout.h"

namespace convt::depthwise {

struct ChannelsLastParams : ThinChannelsLastLayout {
  const void* source;  // x, or in the gradients grad_output: [batch, channels, h, w], any strides
  const void* weight;  // [channels, 1, h.kernel, w.kernel], any strides: not of the gradient of the weight
  const void* bias;    // [channels] or null: of the forward pass
  void* result;        // y, or the gradient of x: [batch, channels, h, w], channels_last
  int64_t source_stride[4];
  int64_t weight_stride[4];
  int64_t result_stride[4];
  // Of the gradient of the weight alone.
  const void* pixels;  // x: [batch, channels, h.in, w.in], any strides
  int64_t pixel_stride[4];
  float* slabs;  // [batch * chunks * column_blocks][channels, h.kernel, w.kernel]
};

}  // namespace convt::depthwise
