// The one kernel of every family whose warpgroups multiply what other warps bring them: a persistent CTA whose warps
// have roles. What a role does is the family's.
// Called by: the families' instances. Must not know: any family.
#pragma once

#include <cstdint>

#include "element/operand.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::hopper {

// A CTA's threads, and who is what among them.
struct Roles {
  int threads;
  int blocks_per_sm;
  int consumers;  // the first warpgroups, which multiply
  // Of a thread. The launch gives all threads alike; those of all warpgroups together are at most as many.
  int consumer_registers;
  int other_registers;
};

// A family's kernel. All of it is inlined: a family is a name for what a thread knows.
//
//   using Params            what the launch hands over, constant for the whole grid
//   kRoles                  its Roles
//   Family(params, s_bytes) what every thread knows: places in shared memory
//   init_barriers()         by all threads, before the CTA's first barrier: barriers and tables in shared memory
//   assign_work()             by all threads, behind that barrier: what of the work is the CTA's
//   run_consumer(warp)           by the warps that multiply
//   run_producer(warp)             by the others, counted from 0: they load, or store what was multiplied
template <typename Family>
__global__ void __launch_bounds__(Family::kRoles.threads, Family::kRoles.blocks_per_sm)
    convolve(const __grid_constant__ typename Family::Params params) {
#ifdef CONVT_HAS_WGMMA
  constexpr Roles kRoles = Family::kRoles;
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  Family family(params, s_bytes);
  family.init_barriers();
  __syncthreads();  // the barriers exist
  family.assign_work();
  // A value that the compiler knows to be the same for the whole warp.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  // What the branch says of the thread's own number, the compiler does not see from its warp's.
  if (warp < 4 * kRoles.consumers) {
    __builtin_assume(threadIdx.x < 128 * kRoles.consumers);
    ptx::setmaxnreg_inc<kRoles.consumer_registers>();
    family.run_consumer(warp);
  } else {
    __builtin_assume(threadIdx.x >= 128 * kRoles.consumers);
    ptx::setmaxnreg_dec<kRoles.other_registers>();
    family.run_producer(warp - 4 * kRoles.consumers);
  }
#endif
}

}  // namespace convt::hopper
