// The products of the kernel for runs of grad_output: positions are the first operand, in registers, read from runs as
// they lie; K is in the order of memory, and TF32 is rounded on the way. Weights are the second operand, as they came.
#pragma once

#include "patch_sm90a/runs_tile.cuh"
#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// The first operand of each step of K in a stage.
using RunsFragments = uint32_t[kRunsSteps][4];

// Where this thread's words lie in a stage: a position's, and from there those of each 16 bytes of K.
struct RunsPlaces {
  uint32_t position[2];
  uint32_t of_k[2 * kRunsSteps];

  __device__ __forceinline__ explicit RunsPlaces(const RunsParams& params) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
    const int32_t last = params.rows * params.by_width.value - 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Positions beyond the tile's are no results: these repeat the last one.
      int32_t column;
      const int32_t row = params.by_width(min(16 * warp + lane / 4 + 8 * h, last), &column);
      position[h] = row * params.row_bytes + (column << params.columns_log2);
    }
#pragma unroll
    for (int i = 0; i < 2 * kRunsSteps; ++i) {
      const int32_t k = 16 * i + lane % 4 * 4, of_channel = k & ((1 << params.patch_log2) - 1);
      const int32_t row = of_channel >> params.columns_log2, of_row = of_channel & ((1 << params.columns_log2) - 1);
      of_k[i] = (k >> params.patch_log2) * params.channel_pitch + row * params.line_bytes + of_row;
    }
  }
};

__device__ __forceinline__ void keep(RunsFragments& fragments) {
#pragma unroll
  for (int i = 0; i < 4 * kRunsSteps; ++i) ptx::keep_fragment(fragments[i / 4][i % 4]);
}

// All products of a CTA's part of a tile. The sums' order: stages, steps of K.
template <typename Element, int kChannels>
__device__ __forceinline__ void multiply_runs(RunsSums<kChannels>& sums, const RunsParams& params, int32_t num_stages,
                                              uint32_t s_weights, uint32_t s_source, Ring ring) {
  // 0, which ptxas does not know: it drops a copy.
  const uint32_t zero = static_cast<uint32_t>(params.num_stages) >> 31;
  const RunsPlaces places(params);
  RunsFragments fragments{};
  uint32_t used = 0;  // the barrier of the slot that products in flight read
#pragma unroll
  for (int i = 0; i < kChannels / 2; ++i) sums.r[i] = 0;
#pragma unroll 1
  for (int32_t stage = 0; stage < num_stages; ++stage) {
    RunsFragments words;
    ring.wait_full();
    const uint32_t s_stage = s_source + ring.slot() * params.source_bytes;
#pragma unroll
    for (int i = 0; i < 4 * kRunsSteps; ++i) {
      words[i / 4][i % 4] = ptx::load_shared(s_stage + places.position[i % 2] + places.of_k[i / 2]);
    }
    ptx::wgmma_wait<0>();
    keep(fragments);
    if (used != 0) release(used);
#pragma unroll
    for (int i = 0; i < 4 * kRunsSteps; ++i) {
      if constexpr (sizeof(Element) == 4) {
        ptx::write_fragment_tf32(fragments[i / 4][i % 4], words[i / 4][i % 4]);
      } else {
        ptx::write_fragment(fragments[i / 4][i % 4], words[i / 4][i % 4] ^ zero);
      }
    }
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + ring.slot() * params.weights_bytes, 128);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRunsSteps; ++step) {
      ptx::wgmma<Element>(sums.r, fragments[step], b.moved(2 * step), true);
    }
    ptx::wgmma_commit();
    used = ring.empty();
    ring.advance();
  }
  ptx::wgmma_wait<0>();
  keep(fragments);
#pragma unroll
  for (int i = 0; i < kChannels / 2; ++i) ptx::keep_accumulator(sums.r[i]);
}

#endif

}  // namespace convt::patch_sm90a
