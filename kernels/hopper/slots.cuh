// Shared-memory addresses of families with two rings, one for the source and one for weights.
// Must not know: slot contents.
#pragma once

#include <cstdint>

#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"

namespace convt::hopper {

// The source is at the start of shared memory. The barriers of the weights' ring follow those of the source's.
template <typename Params>
struct Slots {
  const Params& params;
  const uint32_t s_source, s_weights, s_barriers;

  __device__ __forceinline__ Slots(const Params& params, const unsigned char* s_bytes)
      : params(params),
        s_source(ptx::shared_address(s_bytes)),
        s_weights(s_source + params.weights_begin),
        s_barriers(s_source + params.barriers_begin) {}

  __device__ __forceinline__ int32_t count() const { return params.source_slots + params.weight_slots; }
  __device__ __forceinline__ pipeline::Ring sources() const { return {s_barriers, params.source_slots}; }
  __device__ __forceinline__ pipeline::Ring weights() const {
    return {s_barriers + 16 * params.source_slots, params.weight_slots};
  }
};

}  // namespace convt::hopper
