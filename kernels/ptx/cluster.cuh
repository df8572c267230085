// Clusters of CTAs that access each other's shared memory (PTX ISA, "barrier.cluster", "mapa"; sm_90 and later).
#pragma once

#include <cstdint>

namespace convt::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// %cluster_ctarank
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// barrier.cluster: synchronizes all threads of the cluster that have not exited, and makes their writes visible.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same barrier, split into arrive and wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// mapa: the corresponding address in the shared memory of CTA `rank` of the cluster.
__device__ __forceinline__ uint32_t shared_of_rank(uint32_t shared, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}

// st.shared::cluster.v4.f32
__device__ __forceinline__ void store_cluster(uint32_t there, const float* four) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there), "f"(four[0]), "f"(four[1]),
               "f"(four[2]), "f"(four[3])
               : "memory");
}

// st.async: the same, and completes 16 bytes at `barrier` of the target CTA.
__device__ __forceinline__ void store_cluster_async(uint32_t there, const float* four, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
      "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3]), "r"(barrier)
      : "memory");
}

#endif

}  // namespace convt::ptx
