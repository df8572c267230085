// Loads of global memory that is constant during the kernel (PTX ISA, "ld.global.nc", "prefetch"). `volatile` keeps
// them in program order, before the work that they overlap.
#pragma once

#include <cstdint>

namespace convt::ptx {

// ld.global.nc.b32 if `exists`, otherwise zero
__device__ __forceinline__ uint32_t load_global_or_zero(const void* global, bool exists) {
  uint32_t word = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %2, 0;\n"
      "@exists ld.global.nc.b32 %0, [%1];\n"
      "}"
      : "+r"(word)
      : "l"(global), "r"(static_cast<int32_t>(exists)));
  return word;
}

// ld.global.nc.v4.b32
__device__ __forceinline__ void load_global_or_zero(uint32_t (&words)[4], const void* global, bool exists) {
  words[0] = words[1] = words[2] = words[3] = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %5, 0;\n"
      "@exists ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(global), "r"(static_cast<int32_t>(exists)));
}

// ld.global.nc.v2.b32
__device__ __forceinline__ void load_global_or_zero(uint32_t (&words)[2], const void* global, bool exists) {
  words[0] = words[1] = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %3, 0;\n"
      "@exists ld.global.nc.v2.b32 {%0, %1}, [%2];\n"
      "}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(global), "r"(static_cast<int32_t>(exists)));
}

// ld.global.nc.u16, zero-extended by the load itself. A separate conversion would wait for memory.
__device__ __forceinline__ uint32_t load_global_16_or_zero(const void* global, bool exists) {
  uint32_t half = 0;
  asm volatile(
      "{\n"
      ".reg .pred exists;\n"
      "setp.ne.b32 exists, %2, 0;\n"
      "@exists ld.global.nc.u16 %0, [%1];\n"
      "}"
      : "+r"(half)
      : "l"(global), "r"(static_cast<int32_t>(exists)));
  return half;
}

// prefetch.global.L2
__device__ __forceinline__ void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

}  // namespace convt::ptx
