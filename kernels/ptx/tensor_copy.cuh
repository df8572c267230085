// Copies of boxes of a tensor by the copy engine (PTX ISA, "Data Movement: cp.async.bulk.tensor"; sm_90 and later).
#pragma once

#include <cstdint>

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// cp.async.bulk.tensor.4d: the box that begins at these coordinates, innermost first, into shared memory on 128 bytes;
// zeros for what is outside of the tensor. The innermost coordinate must be a multiple of 16 bytes.
__device__ __forceinline__ void tensor_copy(uint32_t shared, const void* map, const int32_t (&at)[4],
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
      : "memory");
}

// prefetch.tensormap
__device__ __forceinline__ void prefetch_tensor_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#endif

}  // namespace convt::ptx
