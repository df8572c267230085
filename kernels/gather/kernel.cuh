// Layers of few outputs or few channels, forward and gradient of the input: a matrix product of positions and channels.
// The source operand is gathered from memory term by term (kernels/ORDER.md defines the order of each sum). Without a
// source window, tiles can be small and any kernel size and stride work. Launched by gather/launch.cpp.
#pragma once

#include "gather/layout.h"
#include "gather/loader.cuh"
#include "gather/mainloop.cuh"

namespace convt::gather {

// The stages of a tile, in pipeline order.
struct GatherCursor {
  int32_t ci = 0;
  int32_t tap = 0;
  int32_t slot = 0;

  __device__ __forceinline__ GatherChunk chunk(const GatherParams& params, int32_t taps) const {
    return {ci, tap, min(params.chunk_ci, params.group_ci - ci), min(params.chunk_taps, taps - tap)};
  }

  __device__ __forceinline__ void advance(const GatherParams& params, int32_t taps) {
    slot = slot + 1 == params.stages ? 0 : slot + 1;
    tap += params.chunk_taps;
    if (tap < taps) return;
    tap = 0, ci += params.chunk_ci;
  }
};

// Stores runs along the axis that is contiguous in memory, as far as they exist.
template <int kChannels, int kPositions>
__device__ __forceinline__ void store_results(const GatherParams& params, const ResultTile& tile,
                                              const GatherTables& tables,
                                              const GatherPlace<kChannels, kPositions>& place,
                                              const float (&r_acc)[kChannels][kPositions]) {
  constexpr int kRunC = GatherRuns<kChannels>::kRun, kRunP = GatherRuns<kPositions>::kRun;
  const int32_t num_channels = params.group_co - tile.channel;
  const int64_t step = params.result_stride[1];
  const int64_t first = int64_t{tile.group} * params.group_co + tile.channel;
#pragma unroll
  for (int p = 0; p < kPositions; p += kRunP) {
    const int32_t m = place.position + p / kRunP * place.position_step;
    int32_t places[kRunP];
#pragma unroll
    for (int i = 0; i < kRunP; ++i) places[i] = tables.s_result[m + i];
    bool along_positions = kRunP == 4 && params.result_on_vectors && places[0] >= 0 && places[0] % 4 == 0;
#pragma unroll
    for (int i = 1; i < kRunP; ++i) along_positions &= places[i] == places[0] + i;
#pragma unroll
    for (int c = 0; c < kChannels; c += kRunC) {
      const int32_t n = place.channel + c / kRunC * place.channel_step;
      float* g_run = params.result + (first + n) * step;
      const bool along_channels =
          kRunC == 4 && params.result_on_vectors && step == 1 && (first + n) % 4 == 0 && n + kRunC <= num_channels;
#pragma unroll
      for (int i = 0; i < kRunP; ++i) {
        if (!along_channels || places[i] < 0 || places[i] % 4 != 0) continue;
        if constexpr (kRunC == 4) {
          *reinterpret_cast<float4*>(g_run + places[i]) =
              make_float4(r_acc[c][p + i], r_acc[c + 1][p + i], r_acc[c + 2][p + i], r_acc[c + 3][p + i]);
        }
      }
#pragma unroll
      for (int k = 0; k < kRunC; ++k) {
        if (n + k >= num_channels) break;
        float* g_channel = g_run + k * step;
        if constexpr (kRunP == 4) {
          if (along_positions && step % 4 == 0) {
            const float (&r_row)[kPositions] = r_acc[c + k];
            *reinterpret_cast<float4*>(g_channel + places[0]) =
                make_float4(r_row[p], r_row[p + 1], r_row[p + 2], r_row[p + 3]);
            continue;
          }
        }
#pragma unroll
        for (int i = 0; i < kRunP; ++i) {
          const bool stored = along_channels && places[i] % 4 == 0;
          if (!stored && places[i] >= 0) g_channel[places[i]] = r_acc[c + k][p + i];
        }
      }
    }
  }
}

template <int kChannels, int kPositions>
__global__ void __launch_bounds__(kMaxGatherThreads, min_gather_blocks(kChannels* kPositions))
    gather_kernel(const __grid_constant__ GatherParams params) {
  extern __shared__ __align__(16) unsigned char s_bytes[];
  const ResultTile tile = result_tile(params);
  const Phase h = params.phases_h[tile.phase_h], w = params.phases_w[tile.phase_w];
  const int32_t taps = h.num_taps * w.num_taps;
  const GatherTables tables(params, s_bytes);
  // All threads read the tables after this barrier.
  const bool inside = __syncthreads_and(tables.fill(params, tile, h, w)) != 0;

  const float* g_source = params.source + int64_t{tile.group} * params.group_ci * params.source_stride[1];
  const float* g_weight = params.weight + tile.group * params.weight_group_stride +
                          (tile.channel * params.weight_stride[1] + h.first_tap * params.weight_stride[2] +
                           w.first_tap * params.weight_stride[3]);
  const int32_t num_channels = min(params.block_channels, params.group_co - tile.channel);
  const int32_t end_ci = taps > 0 ? params.group_ci : 0;
  const uint32_t s_stages = ptx::shared_address(s_bytes) + params.stage_begin;
  const GatherCopies copies(params);
  GatherCursor ahead;
  auto load_ahead = [&] {
    if (ahead.ci < end_ci) {
      const GatherChunk chunk = ahead.chunk(params, taps);
      const uint32_t s_stage = s_stages + ahead.slot * params.stage_bytes;
      if (inside) {
        load_source<true>(params, tables, copies, chunk, g_source, s_stage);
      } else {
        load_source<false>(params, tables, copies, chunk, g_source, s_stage);
      }
      load_weight(params, tables, chunk, g_weight, num_channels, s_stage + params.stage_weight);
    }
    ptx::cp_async_commit();
    ahead.advance(params, taps);
  };
#pragma unroll 1
  for (int32_t i = 1; i < params.stages; ++i) load_ahead();

  const GatherPlace<kChannels, kPositions> place(params);
  float r_acc[kChannels][kPositions] = {};
#pragma unroll 1
  for (GatherCursor cursor; cursor.ci < end_ci; cursor.advance(params, taps)) {
    ptx::cp_async_wait_all_but(params.stages - 2);
    __syncthreads();  // the stage has arrived, and all threads have read the previous one, which is refilled here
    load_ahead();
    const GatherChunk chunk = cursor.chunk(params, taps);
    const unsigned char* s_stage = s_bytes + params.stage_begin + cursor.slot * params.stage_bytes;
    const auto* s_source = reinterpret_cast<const float*>(s_stage);
    const auto* s_weight = reinterpret_cast<const float*>(s_stage + params.stage_weight);
    const uint32_t* s_bits = tables.s_bits + chunk.tap * (params.table_positions / 32);
    if (inside) {
      multiply<true>(params, place, chunk.num_ci, chunk.num_taps, s_source, s_weight, s_bits, r_acc);
    } else {
      multiply<false>(params, place, chunk.num_ci, chunk.num_taps, s_source, s_weight, s_bits, r_acc);
    }
  }

#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    const int32_t n =
        place.channel + c / GatherRuns<kChannels>::kRun * place.channel_step + c % GatherRuns<kChannels>::kRun;
    // Without a bias, add -0: it leaves every sum unchanged.
    const bool has_bias = params.bias != nullptr && n < num_channels;
    const float bias = has_bias ? params.bias[tile.group * params.group_co + tile.channel + n] : -0.0f;
#pragma unroll
    for (int j = 0; j < kPositions; ++j) r_acc[c][j] = element::add(r_acc[c][j], bias);
  }
  store_results(params, tile, tables, place, r_acc);
  ptx::cp_async_wait<0>();
}

}  // namespace convt::gather
