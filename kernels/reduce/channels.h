// Partition of the pixels of grad_output into slabs, for its sums by channel: the gradient of the bias. Called by:
// reduce/launch.h, plans that have such sums. Must not know: CUDA.
#pragma once

#include <cstdint>

#include "problem/problem.h"
#include "reduce/params.h"

namespace convt {

// A grad_output, or a part of it: sizes and strides of [batch, channels, h, w].
struct ChannelSum {
  DataType dtype;
  int64_t size[4];
  int64_t stride[4];  // elements
};

inline ChannelSum channel_sum_of(DataType dtype, const int64_t (&size)[4], const int64_t (&stride)[4]) {
  return {dtype, {size[0], size[1], size[2], size[3]}, {stride[0], stride[1], stride[2], stride[3]}};
}

// Depends only on sizes and strides, so that the sums are the same on every GPU. Pointers are not set.
reduce::ChannelParams channel_params(const ChannelSum& sum);

// Number of slabs. A slab contains one sum per channel.
int64_t num_channel_slabs(const reduce::ChannelParams& params);
inline int64_t num_channel_slabs(const ChannelSum& sum) { return num_channel_slabs(channel_params(sum)); }

}  // namespace convt
