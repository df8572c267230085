// Stream-K fixup: CTAs multiply parts of a tile and store their partial accumulators in global memory. The last CTA to
// arrive adds all partials in the order of parts, so the result does not depend on arrival order. No CTA waits for
// another CTA, which might not be resident yet. Must not know: what was accumulated.
#pragma once

#include <cstdint>

#include "ptx/global.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::reduce {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Adds a thread's vectors, kStep bytes apart, of all parts in order, and stores the sums in the first part. Not
// inlined: otherwise the loads take registers from the accumulators of the main loop.
template <int kCount, int kStep>
__device__ __noinline__ void add_partials(char* g, int32_t parts) {
  constexpr int kTogether = 8;
  static_assert(kCount % kTogether == 0);
#pragma unroll 1
  for (int begin = 0; begin < kCount; begin += kTogether, g += kTogether * kStep) {
    float sums[kTogether][4];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) ptx::load_global_cg(sums[i], g + i * kStep);
#pragma unroll 1
    for (int32_t part = 1; part < parts; ++part) {
      const char* g_part = g + part * kCount * kStep;
      float added[kTogether][4];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) ptx::load_global_cg(added[i], g_part + i * kStep);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[i][k] += added[i][k];
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) ptx::store_global_cg(g + i * kStep, sums[i]);
  }
}

// Called by kThreads threads of each CTA, with kPlanes products of kBlocks blocks of 8 columns. `of_plane` returns a
// plane's accumulators, four per block. `sums` holds the partials of all `parts` of the tile. *arrived must be zero
// before the first CTA arrives, and the word at `s_word` must be free. Returns true in the CTA that holds the sum of
// all parts.
template <int kThreads, int kPlanes, int kBlocks, typename OfPlane>
__device__ __forceinline__ bool stream_k_fixup(const OfPlane& of_plane, int32_t part, int32_t parts, char* sums,
                                               uint32_t* arrived, uint32_t s_word) {
  constexpr int kStep = kThreads * 16, kCount = kPlanes * kBlocks;
  char* g_own = sums + (part * kCount * kThreads + static_cast<int32_t>(threadIdx.x)) * 16;
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      ptx::store_global_cg(g_own + (plane * kBlocks + block) * kStep, of_plane(plane) + 4 * block);
    }
  }
  ptx::named_barrier(1, kThreads);  // all threads have stored the part
  if (threadIdx.x == 0) ptx::store_shared(s_word, ptx::atomic_add_acq_rel(arrived));
  ptx::named_barrier(1, kThreads);
  if (static_cast<int32_t>(ptx::load_shared(s_word)) < parts - 1) return false;
  char* g = sums + static_cast<int32_t>(threadIdx.x) * 16;
  add_partials<kCount, kStep>(g, parts);
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float four[4];
      ptx::load_global_cg(four, g + (plane * kBlocks + block) * kStep);
#pragma unroll
      for (int i = 0; i < 4; ++i) of_plane(plane)[4 * block + i] = four[i];
    }
  }
  return true;
}

#endif

}  // namespace convt::reduce
