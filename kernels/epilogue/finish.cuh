// Adds the bias of result channels to accumulators before they are rounded and stored.
// Called by the stores of all tensor-core families. Must not know: how a result is stored.
#pragma once

#include <cstdint>

#include "element/operand.cuh"

namespace convt::epilogue {

// Bias of a channel of the group, plus the program's per-channel addend; 0 for channels past `channels`. kSteps:
// whether an epilogue program is possible.
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

// Accumulator to float32 result.
__device__ __forceinline__ float finish(float accumulator, float bias) { return element::add(accumulator, bias); }

}  // namespace convt::epilogue
