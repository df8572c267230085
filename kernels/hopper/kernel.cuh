// The persistent warp-specialized kernel of all producer/consumer families. Families define the work of each role.
// Called by: the families' instances. Must not know: any family.
#pragma once

#include <cstdint>

#include "element/operand.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::hopper {

// Thread roles of a CTA.
struct Roles {
  int threads;
  int blocks_per_sm;
  int consumers;  // consumer warpgroups, which come first
  // Registers per thread after setmaxnreg. The sum over all warpgroups must not exceed the allotment at launch.
  int consumer_registers;
  int other_registers;
};

// A family's kernel. All members are inlined.
//
//   using Params            kernel parameters, constant for the whole grid
//   kRoles                  its Roles
//   Family(params, s_bytes) state of every thread: addresses in shared memory
//   init_barriers()         all threads, before the CTA's first barrier: barriers and tables in shared memory
//   assign_work()           all threads, after that barrier: the CTA's share of the work
//   run_consumer(warp)      consumer warps: matrix products
//   run_producer(warp)      the other warps, counted from 0: loads, or stores of results
template <typename Family>
__global__ void __launch_bounds__(Family::kRoles.threads, Family::kRoles.blocks_per_sm)
    convolve(const __grid_constant__ typename Family::Params params) {
#ifdef CONVT_HAS_WGMMA
  constexpr Roles kRoles = Family::kRoles;
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  Family family(params, s_bytes);
  family.init_barriers();
  __syncthreads();  // barriers are initialized
  family.assign_work();
  // The shuffle tells the compiler that the value is warp-uniform.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  // The compiler cannot infer the range of threadIdx.x from `warp`.
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
