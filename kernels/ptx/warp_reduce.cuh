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

// The same value, kept out of the uniform registers: a loop counted there pays their latency twice an
// iteration, once to compare and once to hand the verdict to the branch (shfl.sync of the own lane).
__device__ __forceinline__ int in_register(int value) {
  return __shfl_sync(0xffffffffu, value, static_cast<int>(threadIdx.x % 32));
}

__device__ __forceinline__ int warp_min(int value) { return -warp_max(-value); }

}  // namespace convt::ptx
