// Launches of the reduce/ kernels. Called by the engines' launchers and by binding/.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "problem/problem.h"
#include "reduce/channels.h"
#include "reduce/params.h"

namespace convt {

// result[size[0], ..., size[3]] = the sum of `num_slabs` contiguous slabs of that shape, in float32 or, for float64, in
// float64. The previous kernel in the stream must be a convt_ext kernel, preferably the one that writes the slabs: from
// sm_90 on, this kernel starts early (programmatic dependent launch) and waits for it. With terms, sums that are NaN
// are recomputed from them. Throws std::runtime_error if CUDA rejects the launch.
void launch_add_slabs(DataType dtype, const void* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      void* result, cudaStream_t stream, const reduce::WeightTerms& terms = {});

// Gradient of the bias, contiguous [channels], as the sum of slabs of one sum per channel. Must follow the convt_ext
// kernel that writes the last slab.
inline void launch_add_bias(DataType dtype, int64_t channels, const void* slabs, int64_t num_slabs, void* result,
                            cudaStream_t stream) {
  const int64_t size[4] = {channels, 1, 1, 1}, stride[4] = {1, 1, 1, 1};
  launch_add_slabs(dtype, slabs, num_slabs, size, stride, result, stream);
}

// Writes slabs of sums in float32 or, for float64, in float64. A single slab is written to `result` instead, if it is
// not null. Returns the number of slabs, num_channel_slabs().
int64_t launch_channel_slabs(const ChannelSum& sum, const void* gy, void* slabs, cudaStream_t stream,
                             void* result = nullptr);

// Workspace of launch_channel_sum(), in bytes.
int64_t workspace_bytes(const ChannelSum& sum);

// Writes contiguous result[channels].
void launch_channel_sum(const ChannelSum& sum, const void* gy, void* workspace, void* result, cudaStream_t stream);

}  // namespace convt
