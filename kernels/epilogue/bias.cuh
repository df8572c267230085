// The bias of result channels.
#pragma once

#include <cstdint>

#include "element/operand.cuh"

namespace convt::epilogue {

// Of one of a group's `channels`; 0 without a bias, and for channels that do not exist.
template <typename Element>
__device__ __forceinline__ float bias_of(const void* g_bias, int32_t group, int32_t channels, int32_t channel) {
  if (g_bias == nullptr || channel >= channels) return 0;
  return element::to_accumulator(static_cast<const Element*>(g_bias)[group * channels + channel]);
}

}  // namespace convt::epilogue
