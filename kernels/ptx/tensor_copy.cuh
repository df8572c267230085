// TMA copies of tensor boxes (PTX ISA, "Data Movement: cp.async.bulk.tensor"; sm_90 and later).
#pragma once

#include <cstdint>

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// cp.async.bulk.tensor.4d: copies the box at these coordinates, innermost first, to shared memory aligned to 128 bytes,
// with zeros outside the tensor. The innermost coordinate must be a multiple of 16 bytes.
__device__ __forceinline__ void tensor_copy(uint32_t shared, const void* map, const int32_t (&at)[4],
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier)
      : "memory");
}

// A five-dimensional box.
__device__ __forceinline__ void tensor_copy(uint32_t shared, const void* map, const int32_t (&at)[5],
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier)
      : "memory");
}

// cp.async.bulk.tensor.4d to global memory. Elements outside the tensor are skipped. Completes like ptx::bulk_store().
__device__ __forceinline__ void tensor_store(const void* map, const int32_t (&at)[4], uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
               "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared)
               : "memory");
}

#endif

}  // namespace convt::ptx
