// Accumulators of the CTAs of a cluster that share a tile: each CTA multiplies some of the tile's stages, then gets
// from the others what they have of its share of the columns, adds it up and stores it. Must not know: what was
// accumulated.
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::reduce {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Which of a product's columns a CTA (or warpgroup) stores: blocks of 8.
struct ClusterSlice {
  int32_t rank;
  int32_t blocks_log2;

  __device__ __forceinline__ bool has(int block) const { return is_of(block, rank); }
  __device__ __forceinline__ bool is_of(int block, int32_t other) const { return block >> blocks_log2 == other; }
  __device__ __forceinline__ int32_t place(int block) const { return block & ((1 << blocks_log2) - 1); }
};

__device__ __forceinline__ ClusterSlice slice_of_block(int32_t splits, int32_t columns) {
  if (splits == 1) return {0, 16};
  return {static_cast<int32_t>(ptx::cluster_rank()), 31 - __clz(columns / 8 / splits)};
}

// What each gets from every other one: four accumulators a thread of every plane and block.
template <int kThreads, int kPlanes>
__device__ __forceinline__ uint32_t bytes_of_slice(const ClusterSlice& share) {
  return kPlanes * kThreads * 16u << share.blocks_log2;
}

// By kThreads threads of each of `splits`, which have kPlanes products of kBlocks blocks of 8 columns; `of_plane` gives
// a plane's accumulators, four for each block. At `s_mine` of every thread is room for the others' shares of its
// columns, which are added in the order of the ranks. `link` sends to another one, and waits for what the others have
// sent.
template <int kThreads, int kPlanes, int kBlocks, typename OfPlane, typename Link>
__device__ __forceinline__ void exchange_slices(const OfPlane& of_plane, int32_t splits, const ClusterSlice& share,
                                                uint32_t s_mine, Link link) {
  constexpr uint32_t kStep = kThreads * 16;
  const uint32_t share_bytes = bytes_of_slice<kThreads, kPlanes>(share);
  // What comes from number `from` to number `to`, where nothing comes from itself.
  const auto place_of = [&](int32_t from, int32_t to) { return (from - (from > to)) * share_bytes; };
#pragma unroll 1
  for (int32_t step = 1; step < splits; ++step) {
    // Each sends to another one: if all sent to the same, they would wait for that one's shared memory.
    const int32_t other = (share.rank + step) & (splits - 1);
    link.open(s_mine + place_of(share.rank, other), other);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (!share.is_of(block, other)) continue;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        link.send((share.place(block) * kPlanes + plane) * kStep, of_plane(plane) + 4 * block);
      }
    }
  }
  link.wait();
#pragma unroll 1
  for (int32_t other = 0; other < splits; ++other) {
    if (other == share.rank) continue;
    const uint32_t s_other = s_mine + place_of(other, share.rank);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (!share.has(block)) continue;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        float four[4];
        ptx::load_shared<0>(four, s_other + (share.place(block) * kPlanes + plane) * kStep);
        float* acc = of_plane(plane) + 4 * block;
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[i] += four[i];
      }
    }
  }
}

// All threads that multiply, of all CTAs; `s_bytes` is free where nobody multiplies any more.
template <int kThreads, int kPlanes, int kBlocks, typename OfPlane>
__device__ __forceinline__ void reduce_scatter_dsmem(const OfPlane& of_plane, int32_t splits, const ClusterSlice& share,
                                                     uint32_t s_bytes) {
  struct Link {
    uint32_t there;
    __device__ __forceinline__ void open(uint32_t s_place, int32_t other) {
      there = ptx::shared_of_rank(s_place, other);
    }
    __device__ __forceinline__ void send(uint32_t offset, const float* four) const {
      ptx::store_cluster(there + offset, four);
    }
    __device__ __forceinline__ void wait() const { ptx::cluster_barrier(); }
  };
  ptx::cluster_barrier();  // nobody multiplies any more
  exchange_slices<kThreads, kPlanes, kBlocks>(of_plane, splits, share, s_bytes + threadIdx.x * 16, Link{});
}

// By stores that are counted where they arrive (st.async), so that a CTA waits for the others' shares alone. Before it
// every CTA's `s_bytes` is free, and its `s_barrier` expects (splits - 1) * bytes_of_slice().
template <int kThreads, int kPlanes, int kBlocks, typename OfPlane>
__device__ __forceinline__ void reduce_scatter_dsmem_async(const OfPlane& of_plane, int32_t splits,
                                                           const ClusterSlice& share, uint32_t s_bytes,
                                                           uint32_t s_barrier) {
  struct Link {
    uint32_t s_barrier, there, barrier_there;
    __device__ __forceinline__ void open(uint32_t s_place, int32_t other) {
      there = ptx::shared_of_rank(s_place, other);
      barrier_there = ptx::shared_of_rank(s_barrier, other);
    }
    __device__ __forceinline__ void send(uint32_t offset, const float* four) const {
      ptx::store_cluster_async(there + offset, four, barrier_there);
    }
    __device__ __forceinline__ void wait() const { ptx::mbarrier_wait(s_barrier, 0); }
  };
  exchange_slices<kThreads, kPlanes, kBlocks>(of_plane, splits, share, s_bytes + threadIdx.x * 16, Link{s_barrier});
}

#endif

}  // namespace convt::reduce
