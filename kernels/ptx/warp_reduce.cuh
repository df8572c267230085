// Reductions over a full warp (PTX ISA, "redux.sync" and, before sm_80, "shfl.sync").
#pragma once

namespace convt::ptx {

__device__ __forceinline__ int warp_max(int value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, value);
#else
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = other > value ? other : value;
  }
  return value;
#endif
}

// Returns its argument (shfl.sync of the own lane), but keeps it out of uniform registers. A loop counter in uniform
// registers costs their latency twice per iteration: in the comparison and in the transfer of the result to the branch.
__device__ __forceinline__ int opaque_lane_value(int value) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(threadIdx.x % 32));
}

__device__ __forceinline__ int warp_min(int value) { return -warp_max(-value); }

// Sum over lanes: lane l and lane l + 16, then l + 8, 4, 2 and 1. Valid only in lane 0.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value = __fadd_rn(value, __shfl_down_sync(0xffffffffu, value, half));
  return value;
}

}  // namespace convt::ptx
