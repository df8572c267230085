// What becomes of accumulators before they are rounded and stored: the bias of result channels is added.
// Called by the stores of all families on tensor cores. Must not know: how a result is stored.
#pragma once

#include <cstdint>

#include "element/operand.cuh"

namespace convt::epilogue {

// Of one of a group's `channels`, with what a program adds by channel; 0 for channels that do not exist. kSteps:
// whether there may be a program.
template <typename Element, bool kSteps = true, typename Params>
__device__ __forceinline__ float bias_of(const Params& params, int32_t group, int32_t channels, int32_t channel) {
  if (channel >= channels) return 0;
  const int32_t number = group * channels + channel;
  float bias = 0;
  if (params.bias != nullptr) bias = element::to_accumulator(static_cast<const Element*>(params.bias)[number]);
  if constexpr (kSteps) {
    if (params.steps.addend != nullptr) {
      const float addend = element::to_accumulator(static_cast<const Element*>(params.steps.addend)[number]);
      bias = fmaf(addend, params.steps.addend_sign, bias);
    }
  }
  return bias;
}

// A result in float32, of its accumulator: whatever else is done to results belongs here.
__device__ __forceinline__ float finish(float accumulator, float bias) { return element::add(accumulator, bias); }

}  // namespace convt::epilogue
