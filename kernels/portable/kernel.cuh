// The forward pass and the gradient of the input: a multistage cp.async GEMM.
#pragma once

#include <cstdint>

#include "pipeline/stages.cuh"
#include "portable/source.cuh"
#include "portable/store.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// A thread's partial accumulators of a split of K, in float4 that are contiguous across threads.
template <int kThreads, int kRows, int kColumns>
__device__ __forceinline__ float4* slab_of_thread(const Params& params, const Tile& tile, int32_t part) {
  constexpr int kFragments = kRows / 16 * (kColumns / 8);
  const int64_t number = int64_t{part} * params.by_tiles.value + tile.number;
  return reinterpret_cast<float4*>(params.slabs) + number * kFragments * kThreads + threadIdx.x;
}

template <int kThreads, int kRows, int kColumns>
__device__ __forceinline__ void keep_slab(const Params& params, const Tile& tile,
                                          const Accumulators<kRows, kColumns>& sums) {
  float4* g_slab = slab_of_thread<kThreads, kRows, kColumns>(params, tile, tile.part);
#pragma unroll
  for (int m = 0; m < kRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n, g_slab += kThreads) {
      *g_slab = float4{sums[m][n][0], sums[m][n][1], sums[m][n][2], sums[m][n][3]};
    }
  }
}

// Adds in the order of K, so that results are reproducible.
template <int kThreads, int kRows, int kColumns>
__device__ __forceinline__ void add_slabs(const Params& params, const Tile& tile, Accumulators<kRows, kColumns>& sums) {
  for (int32_t part = 0; part < params.splits; ++part) {
    const float4* g_slab = slab_of_thread<kThreads, kRows, kColumns>(params, tile, part);
#pragma unroll
    for (int m = 0; m < kRows / 16; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n, g_slab += kThreads) {
        const float4 four = *g_slab;
        sums[m][n][0] += four.x;
        sums[m][n][1] += four.y;
        sums[m][n][2] += four.z;
        sums[m][n][3] += four.w;
      }
    }
  }
}

#endif

template <typename Element, int kBlockM, int kBlockN, int kWarpsM, int kWarpsN>
__global__ void __launch_bounds__(32 * kWarpsM * kWarpsN, 2) convolve(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_MMA
  constexpr int kThreads = 32 * kWarpsM * kWarpsN, kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  constexpr uint32_t kSourceBytes = kBlockM * kPortableRowBytes;
  constexpr uint32_t kStageBytes = kSourceBytes + kBlockN * kPortableRowBytes;
  static_assert(kWarpM % kPortableStoredRows == 0 && kWarpN % 32 == 0);
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_stages = ptx::shared_address(s_bytes);

  const Tile tile = tile_of_block(params, kBlockM, kBlockN);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row = warp / kWarpsN * kWarpM, column = warp % kWarpsN * kWarpN;
  Accumulators<kWarpM, kWarpN> sums{};
  if (params.adds_slabs) {
    add_slabs<kThreads, kWarpM, kWarpN>(params, tile, sums);
  } else {
    StageLoader<Element, kBlockM, kBlockN, kThreads> loader(params, tile);
    const StagePlaces places = places_of_warp(row, column);
    const auto copy = [&](int32_t, int32_t slot) {
      loader.load(s_stages + slot * kStageBytes, s_stages + slot * kStageBytes + kSourceBytes);
    };
    pipeline::run_stages(tile.num_stages, params.stages, copy, [&](int32_t slot) {
      const uint32_t s_source = s_stages + slot * kStageBytes;
      multiply_stage<Element, kWarpM, kWarpN>(sums, s_source, s_source + kSourceBytes, places, params.rounds_source);
    });
    if (params.slabs != nullptr) {
      keep_slab<kThreads, kWarpM, kWarpN>(params, tile, sums);
      return;
    }
  }
  __syncthreads();
  auto* s_staged = reinterpret_cast<float*>(s_bytes + warp * portable_staged_bytes(kWarpN));
  store_sums<Element, kWarpM, kWarpN>(params, tile, row, column, sums, s_staged);
#endif
}

}  // namespace convt::portable
