// Stages that all threads of a CTA copy, and all its warps use: some are on their way while one is used.
// Must not know: what is in a slot.
#pragma once

#include <cstdint>

#include "ptx/cp_async.cuh"

namespace convt::pipeline {

// Calls copy(stage, slot), which asks for a stage by cp.async, and use(slot) for each stage in order. Afterwards no
// copy is on its way, but warps may still use the last slots.
template <typename Copy, typename Use>
__device__ __forceinline__ void run_stages(int32_t num_stages, int32_t num_slots, Copy&& copy, Use&& use) {
  // A group of copies for every stage, also for those that do not exist, so that counting groups is counting stages.
  const auto ask = [&](int32_t stage, int32_t slot) {
    if (stage < num_stages) copy(stage, slot);
    ptx::cp_async_commit();
  };
  const int32_t ahead = num_slots - 1;
  for (int32_t stage = 0; stage < ahead; ++stage) ask(stage, stage);
  int32_t slot = 0, next = ahead;
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    ptx::cp_async_wait_all_but(ahead - 1);
    __syncthreads();  // all copies of this stage are here, and all warps are done with the stage before it
    ask(stage + ahead, next);
    use(slot);
    slot = slot + 1 == num_slots ? 0 : slot + 1;
    next = next + 1 == num_slots ? 0 : next + 1;
  }
  ptx::cp_async_wait<0>();
}

}  // namespace convt::pipeline
