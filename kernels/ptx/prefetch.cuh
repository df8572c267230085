// Brings lines of global memory to L2, for whoever reads them soon (PTX ISA, "prefetch").
#pragma once

namespace convt::ptx {

// prefetch.global.L2
__device__ __forceinline__ void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

}  // namespace convt::ptx
