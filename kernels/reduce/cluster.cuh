// Split-K reduction within a cluster through distributed shared memory. The CTAs of a cluster share a tile: each
// multiplies some of its stages, then receives the others' accumulators for its slice of the columns, adds them and
// stores the slice. Must not know: what was accumulated.
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::reduce {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Columns that a CTA (or warpgroup) stores, in blocks of 8.
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

// Bytes that each CTA receives from each other CTA: four accumulators per thread, plane and block.
template <int kThreads, int kPlanes>
__device__ __forceinline__ uint32_t bytes_of_slice(const ClusterSlice& share) {
  return kPlanes * kThreads * 16u << share.blocks_log2;
}

// Called by kThreads threads of each of `splits` CTAs, with kPlanes products of kBlocks blocks of 8 columns. `of_plane`
// returns a plane's accumulators, four per block. `s_mine` is each thread's buffer for the others' slices of its
// columns, which are added in rank order. `link` sends to another CTA, and waits for the data of all others.
template <int kThreads, int kPlanes, int kBlocks, typename OfPlane, typename Link>
__device__ __forceinline__ void exchange_slices(const OfPlane& of_plane, int32_t splits, const ClusterSlice& share,
                                                uint32_t s_mine, Link link) {
  constexpr uint32_t kStep = kThreads * 16;
  const uint32_t share_bytes = bytes_of_slice<kThreads, kPlanes>(share);
  // Offset of the data from rank `from` in the buffer of rank `to`. A rank sends nothing to itself.
  const auto place_of = [&](int32_t from, int32_t to) { return (from - (from > to)) * share_bytes; };
#pragma unroll 1
  for (int32_t step = 1; step < splits; ++step) {
    // In each step every rank sends to a different rank. Otherwise all would contend for one CTA's shared memory.
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

// All consumer threads of all CTAs. `s_bytes` must be free once all consumers have finished their products.
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
  ptx::cluster_barrier();  // all CTAs have finished their products
  exchange_slices<kThreads, kPlanes, kBlocks>(of_plane, splits, share, s_bytes + threadIdx.x * 16, Link{});
}

// Uses st.async, which counts bytes at the receiver's barrier, so that a CTA waits only for its own data. Before the
// call every CTA's `s_bytes` must be free, and its `s_barrier` must expect (splits - 1) * bytes_of_slice().
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

// Reduces over the warpgroups of one CTA. Each warpgroup is a rank. `s_bytes` must be free once all of them have
// finished their products.
template <int kWarpgroups, int kPlanes, int kBlocks, typename OfPlane>
__device__ __forceinline__ void reduce_warpgroups(const OfPlane& of_plane, const ClusterSlice& share,
                                                  uint32_t s_bytes) {
  struct Link {
    uint32_t bytes, there;
    int32_t rank;
    __device__ __forceinline__ void open(uint32_t s_place, int32_t other) { there = s_place + (other - rank) * bytes; }
    __device__ __forceinline__ void send(uint32_t offset, const float* four) const {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __float_as_uint(four[i]);
      ptx::store_shared(there + offset, words);
    }
    __device__ __forceinline__ void wait() const { ptx::named_barrier(1, kWarpgroups * 128); }
  };
  const uint32_t bytes = (kWarpgroups - 1) * bytes_of_slice<128, kPlanes>(share);
  const uint32_t s_mine = s_bytes + share.rank * bytes + threadIdx.x % 128 * 16;
  ptx::named_barrier(1, kWarpgroups * 128);  // all products are complete
  exchange_slices<128, kPlanes, kBlocks>(of_plane, kWarpgroups, share, s_mine, Link{bytes, 0, share.rank});
}

#endif

}  // namespace convt::reduce
