// Asynchronous copies of single words, several at a time (PTX ISA, "Data Movement: cp.async").
#pragma once

#include <cstdint>

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Four times cp.async of 4 bytes, of which the first bytes[i] come from global memory and the others are zeros. A copy
// reads its registers late: each has its own, or it waits for the copy before.
__device__ __forceinline__ void cp_async_words(const uint32_t (&shared)[4], const void* const (&global)[4],
                                               const int32_t (&bytes)[4]) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%4], 4, %8;\n"
      "cp.async.ca.shared.global [%1], [%5], 4, %9;\n"
      "cp.async.ca.shared.global [%2], [%6], 4, %10;\n"
      "cp.async.ca.shared.global [%3], [%7], 4, %11;" ::"r"(shared[0]),
      "r"(shared[1]), "r"(shared[2]), "r"(shared[3]), "l"(global[0]), "l"(global[1]), "l"(global[2]), "l"(global[3]),
      "r"(bytes[0]), "r"(bytes[1]), "r"(bytes[2]), "r"(bytes[3]));
}

#endif

}  // namespace convt::ptx
