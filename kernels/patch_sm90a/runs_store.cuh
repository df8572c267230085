// Accumulators -> result of the kernel for runs of grad_output: by way of shared memory, so that a channel's positions leave
// together.
#pragma once

#include "epilogue/store_neighbours.cuh"
#include "patch_sm90a/runs_cluster.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// kCount neighbouring positions of each of the tile's staged channels, by all threads that multiply.
template <typename Element, int kCount>
__device__ __forceinline__ void leave_runs(const RunsParams& params, const RunsTile& tile, int32_t first_channel,
                                           int32_t channels, uint32_t s_staged) {
  constexpr int kOfChannel = kRunsPositions / kCount;  // threads
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t of_tile = thread % kOfChannel * kCount, position = tile.first_row * params.by_width.value + of_tile;
  if (of_tile >= params.rows * params.by_width.value || position >= params.positions) return;
  int32_t place;
  const int32_t image = params.by_image(position, &place);
  const int32_t begin = thread / kOfChannel;
  auto* g = static_cast<Element*>(params.result) + image * params.result_stride[0] + place +
            (int64_t{first_channel} + begin) * params.result_stride[1];
  const int32_t end = min(channels, params.n_channels - first_channel);
  constexpr int kStep = kRunsConsumerThreads / kOfChannel;
#pragma unroll 4
  for (int32_t channel = begin; channel < end; channel += kStep, g += kStep * params.result_stride[1]) {
    const uint32_t s = s_staged + (channel * kRunsStagedPitch + of_tile) * 4;
    float values[kCount];
    if constexpr (kCount == 1) {
      values[0] = __uint_as_float(ptx::load_shared(s));
      *g = element::to_element<Element>(values[0]);
    } else {
      ptx::load_shared<0>(values, s);
      Element elements[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) elements[i] = element::to_element<Element>(values[i]);
      epilogue::store_vector(g, elements);
    }
  }
}

// The sums of the CTA's share of the tile's channels. `s_staged` is free once all threads that multiply are here.
template <typename Element, int kChannels>
__device__ __forceinline__ void store_runs_tile(const RunsSums<kChannels>& sums, const RunsParams& params,
                                                const RunsTile& tile, const Share& share, uint32_t s_staged) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
  const uint32_t s_mine = s_staged + (lane % 4 * 2 * kRunsStagedPitch + 16 * warp + lane / 4) * 4;
  ptx::named_barrier(1, kRunsConsumerThreads);
#pragma unroll
  for (int j = 0; j < kChannels / 8; ++j) {
    if (!share.has(j)) continue;
    const uint32_t s_block = s_mine + share.place(j) * (8 * kRunsStagedPitch * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::store_shared(s_block + i % 2 * (kRunsStagedPitch * 4) + i / 2 * 32, __float_as_uint(sums.r[4 * j + i]));
    }
  }
  ptx::named_barrier(1, kRunsConsumerThreads);  // all sums are staged
  const int32_t channels = kChannels >> params.splits_log2, first = tile.first_channel + share.rank * channels;
  if (params.quads) {
    leave_runs<Element, 4>(params, tile, first, channels, s_staged);
  } else {
    leave_runs<Element, 1>(params, tile, first, channels, s_staged);
  }
}

#endif

}  // namespace convt::patch_sm90a
