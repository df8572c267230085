// Multistage cp.async pipeline, in which all threads of a CTA copy and all warps consume. Must not know: slot contents.
#pragma once

#include <cstdint>

#include "ptx/cp_async.cuh"

namespace convt::pipeline {

// Calls copy(stage, slot), which issues the stage's cp.async, and use(slot) for each stage in order. On return no copy
// is in flight, but warps may still read the last slots.
template <typename Copy, typename Use>
__device__ __forceinline__ void run_stages(int32_t num_stages, int32_t num_slots, Copy&& copy, Use&& use) {
  // Commits one group per stage, also for stages past the end, so that waiting for groups means waiting for stages.
  const auto ask = [&](int32_t stage, int32_t slot) {
    if (stage < num_stages) copy(stage, slot);
    ptx::cp_async_commit();
  };
  const int32_t ahead = num_slots - 1;
  for (int32_t stage = 0; stage < ahead; ++stage) ask(stage, stage);
  int32_t slot = 0, next = ahead;
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    ptx::cp_async_wait_all_but(ahead - 1);
    __syncthreads();  // this stage has arrived, and all warps have finished the previous stage
    ask(stage + ahead, next);
    use(slot);
    slot = slot + 1 == num_slots ? 0 : slot + 1;
    next = next + 1 == num_slots ? 0 : next + 1;
  }
  ptx::cp_async_wait<0>();
}

}  // namespace convt::pipeline
