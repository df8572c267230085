// Loads contiguous elements from shared memory to registers.
#pragma once

#include <cstdint>

#include "ptx/shared.cuh"

namespace convt::element {

// Loads kCount elements, 16 bytes at a time if possible.
template <int kCount, int kOffset = 0, typename Accumulator>
__device__ __forceinline__ void read_shared(Accumulator* r_values, uint32_t s_values) {
  constexpr int kPerLoad = sizeof(Accumulator) == 8 || kCount < 4 ? 2 : 4;
  static_assert(kCount % kPerLoad == 0, "whole vectors");
  Accumulator r_vector[kPerLoad];
  ptx::load_shared<kOffset>(r_vector, s_values);
#pragma unroll
  for (int i = 0; i < kPerLoad; ++i) r_values[i] = r_vector[i];
  if constexpr (kCount > kPerLoad) {
    read_shared<kCount - kPerLoad, kOffset + kPerLoad* static_cast<int>(sizeof(Accumulator))>(r_values + kPerLoad,
                                                                                              s_values);
  }
}

}  // namespace convt::element
