// The forward pass and the gradient of the input: a CTA's tile of the GEMM, its operands a few stages ahead.
#pragma once

#include <cstdint>

#include "pipeline/stages.cuh"
#include "portable/source.cuh"
#include "portable/store.cuh"

namespace convt::portable {

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
  StageLoader<Element, kBlockM, kBlockN, kThreads> loader(params, tile);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t row = warp / kWarpsN * kWarpM, column = warp % kWarpsN * kWarpN;
  const StagePlaces places = places_of_warp(row, column);
  Accumulators<kWarpM, kWarpN> sums{};

  const auto copy = [&](int32_t, int32_t slot) {
    loader.load(s_stages + slot * kStageBytes, s_stages + slot * kStageBytes + kSourceBytes);
  };
  pipeline::run_stages(tile.num_stages, params.stages, copy, [&](int32_t slot) {
    const uint32_t s_source = s_stages + slot * kStageBytes;
    multiply_stage<Element, kWarpM, kWarpN>(sums, s_source, s_source + kSourceBytes, places, params.rounds_source);
  });
  __syncthreads();
  auto* s_staged = reinterpret_cast<float*>(s_bytes + warp * portable_staged_bytes(kWarpN));
  store_sums<Element, kWarpM, kWarpN>(params, tile, row, column, sums, s_staged);
#endif
}

}  // namespace convt::portable
