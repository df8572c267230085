// Accumulators of CTAs that have multiplied a part of a tile each: every CTA leaves its own in memory, and the last one
// to come adds them up, in the order of the parts, whoever it is. Nobody waits for another CTA, which might not run
// yet. Must not know: what was accumulated.
#pragma once

#include <cstdint>

#include "ptx/global_cg.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"

namespace convt::reduce {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Adds up what a thread finds kStep bytes apart in all parts, in their order, and leaves it in the first one. Called
// and not inlined: among accumulators the loads take registers from the products, wherever they stand.
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

// By kThreads threads of each CTA, which have kPlanes products of kBlocks blocks of 8 columns; `of_plane` gives a
// plane's accumulators, four for each block. At `sums` is room for those of all `parts` of the tile; *arrived is zero
// before the first CTA comes, and the word at `s_word` is free. True where this CTA has the sum of all parts.
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
  ptx::named_barrier(1, kThreads);  // all of the part is there
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
