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

// Its argument, kept out of the uniform registers: a loop counted there pays their latency twice an
// iteration, once to compare and once to hand the verdict to the branch (shfl.sync of the own lane).
__device__ __forceinline__ int opaque_lane_value(int value) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(threadIdx.x % 32));
}

__device__ __forceinline__ int warp_min(int value) { return -warp_max(-value); }

// The lanes' sum, added in halves: lane l and lane l + 16, then l + 8, 4, 2 and 1. For lane 0 alone.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value = __fadd_rn(value, __shfl_down_sync(0xffffffffu, value, half));
  return value;
}

}  // namespace convt::ptx
