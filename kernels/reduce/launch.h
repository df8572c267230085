// Launches of the kernels of reduce/. Called by the launchers of the engines and by binding/.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "problem/problem.h"
#include "reduce/channels.h"
#include "reduce/params.h"

namespace convt {

// result[size[0], ..., size[3]] = the sum of `num_slabs` contiguous slabs of that shape, of float32 or, for float64,
// float64. The stream's kernel before it must be our own, best the one that writes the slabs: from sm_90 on the sum
// begins before that one has ended, and waits for it. Where there are terms, a sum that is NaN is made of them again.
// Throws std::runtime_error when CUDA refuses the launch.
void launch_add_slabs(DataType dtype, const void* slabs, int64_t num_slabs, const int64_t* size, const int64_t* stride,
                      void* result, cudaStream_t stream, const reduce::WeightTerms& terms = {});

// The gradient of the bias, [channels], contiguous, as the sum of slabs of as many sums, behind the kernel of ours that
// has written the last of them.
inline void launch_add_bias(DataType dtype, int64_t channels, const void* slabs, int64_t num_slabs, void* result,
                            cudaStream_t stream) {
  const int64_t size[4] = {channels, 1, 1, 1}, stride[4] = {1, 1, 1, 1};
  launch_add_slabs(dtype, slabs, num_slabs, size, stride, result, stream);
}

// Slabs of sums of float32 or, for float64, float64; where there is one and a result, that in its place. Returns how
// many there are, num_channel_slabs().
int64_t launch_channel_slabs(const ChannelSum& sum, const void* gy, void* slabs, cudaStream_t stream,
                             void* result = nullptr);

// Device memory that launch_channel_sum() needs.
int64_t workspace_bytes(const ChannelSum& sum);

// result[channels], contiguous.
void launch_channel_sum(const ChannelSum& sum, const void* gy, void* workspace, void* result, cudaStream_t stream);

}  // namespace convt
