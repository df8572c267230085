// The persistent warp-specialized kernel of all producer/consumer families, its tile scheduler and its slots of shared
// memory. Families define the work of each role.
// Called by: the families' instances. Must not know: any family.
#pragma once

#include <cstdint>

#include "element/operand.cuh"
#include "pipeline/ring.cuh"
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

// The CTAs of a cluster split the work of one tile, and process no other tile.
template <typename Params>
__device__ __forceinline__ int32_t first_tile(const Params& params) {
  if constexpr (requires { params.splits; }) return static_cast<int32_t>(blockIdx.x) / params.splits;
  return static_cast<int32_t>(blockIdx.x);
}

// Step between the tiles of a CTA. In a cluster it exceeds the last tile.
__device__ __forceinline__ int32_t tile_step() { return static_cast<int32_t>(gridDim.x); }

// Shared-memory addresses of families with two rings, one for the source and one for weights. The source is at the
// start of shared memory. The barriers of the weights' ring follow those of the source's.
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
