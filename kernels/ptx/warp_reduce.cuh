// Reductions over a full warp (PTX ISA, "redux.sync"; shuffles before sm_80).
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

__device__ __forceinline__ int warp_min(int value) { return -warp_max(-value); }

}  // namespace convt::ptx
