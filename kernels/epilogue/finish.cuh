// What becomes of accumulators before they are rounded and stored: the bias of result channels is added.
// Called by the stores of all families on tensor cores. Must not know: how a result is stored.
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

// A result in float32, of its accumulator: whatever else is done to results belongs here.
__device__ __forceinline__ float finish(float accumulator, float bias) { return element::add(accumulator, bias); }

}  // namespace convt::epilogue
