// Sums of grad_output by channel, for the gradient of the bias: how its pixels are cut into slabs.
// Called by: reduce/launch.h, plans that have such sums. Must not know: CUDA.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "reduce/params.h"

namespace convt {

// Of a grad_output of these sizes and strides, [batch, channels, h, w], or of a part of it.
struct ChannelSum {
  DataType dtype;
  int64_t size[4];
  int64_t stride[4];  // elements
};

inline ChannelSum channel_sum_of(DataType dtype, const int64_t (&size)[4], const int64_t (&stride)[4]) {
  return {dtype, {size[0], size[1], size[2], size[3]}, {stride[0], stride[1], stride[2], stride[3]}};
}

// By sizes and strides alone, so that the sums are the same on every GPU. Without pointers.
reduce::ChannelParams channel_params(const ChannelSum& sum);

// Rows of as many sums as there are channels.
int64_t num_channel_slabs(const reduce::ChannelParams& params);
inline int64_t num_channel_slabs(const ChannelSum& sum) { return num_channel_slabs(channel_params(sum)); }

}  // namespace convt
