// The patch_runs kernel, for runs of grad_output: two consumer warpgroups multiply and store, one producer warp loads.
// Each result is accumulated by one warpgroup, or by one per CTA of a cluster, in an order that does not depend on
// timing.
#pragma once

#include "element/operand.cuh"
#include "element/registers.cuh"
#include "epilogue/store_neighbours.cuh"
#include "patch_sm90a/params.h"
#include "pipeline/ring.cuh"
#include "ptx/tensor_copy.cuh"
#include "reduce/cluster.cuh"

namespace convt::patch_sm90a {

// The results of a CTA, and the stages that it multiplies.
struct RunsTile {
  int32_t first_row;      // row of positions, counted over all images
  int32_t first_channel;  // of the result
  int32_t first_stage, end_stage;
};

// Consecutive tiles share their source in L2. CTAs of a cluster split the stages of one tile.
__device__ __forceinline__ RunsTile runs_tile(const RunsParams& params, int32_t channels) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t rank = block & (params.splits - 1);
  int32_t channel_tile;
  const int32_t row_tile = params.channel_tiles(block >> params.splits_log2, &channel_tile);
  return {row_tile * params.rows, channel_tile * channels, params.num_stages * rank >> params.splits_log2,
          params.num_stages * (rank + 1) >> params.splits_log2};
}

// Accumulators of a thread: accumulator 4 * j + 2 * h + i is channel 8 * j + 2 * (lane % 4) + i of position lane / 4 +
// 8 * h of the warp's sixteen.
template <int kChannels>
struct RunsAccumulators {
  float r[kChannels / 2];
};

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;
using reduce::ClusterSlice;

// Copies the runs of a stage, one lane per channel. Rows of one image are one run of a channel.
__device__ __forceinline__ void copy_runs(const RunsParams& params, const RunsTile& tile, int32_t rows, int32_t stage,
                                          uint32_t s_stage, uint32_t full) {
  const int32_t channel = static_cast<int32_t>(threadIdx.x) % 32;
  if (channel >= params.stage_channels) return;
  const char* g_channel =
      static_cast<const char*>(params.source) + (stage * params.stage_channels + channel) * params.source_stride[1];
  uint32_t s_run = s_stage + channel * params.channel_pitch;
  for (int32_t row = 0; row < rows;) {
    int32_t of_image;
    const int32_t image = params.by_rows(tile.first_row + row, &of_image);
    const int32_t together = min(rows - row, params.by_rows.value - of_image);
    const char* g_run = g_channel + image * params.source_stride[0] + int64_t{of_image} * params.row_bytes;
    const uint32_t bytes = together * params.row_bytes;
    ptx::bulk_copy(s_run, g_run, bytes, full);
    s_run += bytes;
    row += together;
  }
}

__device__ __forceinline__ void load_runs(const RunsParams& params, const RunsTile& tile, uint32_t s_weights,
                                          uint32_t s_source, Ring ring) {
  const bool first = threadIdx.x % 32 == 0;
  const int32_t rows = params.boxes ? params.rows : min(params.rows, params.total_rows - tile.first_row);
  const uint32_t bytes = params.weights_bytes + params.stage_channels * rows * params.row_bytes;
  int32_t row;
  const int32_t image = params.by_rows(tile.first_row, &row);
  for (int32_t stage = tile.first_stage; stage < tile.end_stage; ++stage) {
    ring.wait_empty();  // the consumers have released the slot
    if (first) ptx::mbarrier_expect(ring.full(), bytes);
    __syncwarp();  // expect precedes all copies
    const uint32_t s_stage = s_source + ring.slot() * params.source_bytes;
    if (!params.boxes) copy_runs(params, tile, rows, stage, s_stage, ring.full());
    if (first) {
      if (params.boxes) {
        const int32_t lines[4] = {0, row * params.kernel_h, image, stage * params.stage_channels};
        ptx::tensor_copy(s_stage, &params.lines, lines, ring.full());
      }
      const int32_t weights[4] = {stage * params.stage_elements, tile.first_channel, 0, 0};
      ptx::tensor_copy(s_weights + ring.slot() * params.weights_bytes, &params.weights, weights, ring.full());
    }
    ring.advance();
  }
}

// Operand A of each step of K in a stage.
using RunsFragments = uint32_t[kRunsSteps][4];

// Byte offsets of this thread's words in a stage: of its positions, and relative to them of each 16 bytes of K.
struct RunsPlaces {
  uint32_t position[2];
  uint32_t of_k[2 * kRunsSteps];

  __device__ __forceinline__ explicit RunsPlaces(const RunsParams& params) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
    const int32_t last = params.rows * params.by_width.value - 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Positions past the tile's end repeat the last one. Their results are not stored.
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

// All products of a CTA's stages of a tile, accumulated in the order of stages and steps of K.
template <typename Element, int kChannels>
__device__ __forceinline__ void multiply_runs(RunsAccumulators<kChannels>& acc, const RunsParams& params,
                                              int32_t num_stages, uint32_t s_weights, uint32_t s_source, Ring ring) {
  // Zero, but opaque to ptxas.
  const uint32_t zero = static_cast<uint32_t>(params.num_stages) >> 31;
  const RunsPlaces places(params);
  RunsFragments fragments{};
  uint32_t used = 0;  // empty barrier of the slot that products in flight may read
  element::clear(acc.r);
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
    element::fence_registers(fragments);
    if (used != 0) release(used);
#pragma unroll
    for (int i = 0; i < 4 * kRunsSteps; ++i) {
      element::write_fragment<Element>(fragments[i / 4][i % 4], words[i / 4][i % 4], zero);
    }
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + ring.slot() * params.weights_bytes, 128);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRunsSteps; ++step) {
      ptx::wgmma<Element>(acc.r, fragments[step], b.moved(2 * step), true);
    }
    ptx::wgmma_commit();
    used = ring.empty();
    ring.advance();
  }
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
  element::fence_registers(acc.r);
}

// Stores the tile's staged channels, kCount contiguous positions per thread. Called by all consumer threads.
template <typename Element, int kCount>
__device__ __forceinline__ void store_runs_channels(const RunsParams& params, const RunsTile& tile,
                                                    int32_t first_channel, int32_t channels, uint32_t s_staged) {
  constexpr int kOfChannel = kRunsPositions / kCount;  // threads per channel
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

// Stores the CTA's share of the tile's channels. `s_staged` must be free once all consumer threads arrive.
template <typename Element, int kChannels>
__device__ __forceinline__ void store_runs_tile(const RunsAccumulators<kChannels>& acc, const RunsParams& params,
                                                const RunsTile& tile, const ClusterSlice& share, uint32_t s_staged) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
  const uint32_t s_mine = s_staged + (lane % 4 * 2 * kRunsStagedPitch + 16 * warp + lane / 4) * 4;
  ptx::named_barrier(1, kRunsConsumerThreads);
#pragma unroll
  for (int j = 0; j < kChannels / 8; ++j) {
    if (!share.has(j)) continue;
    const uint32_t s_block = s_mine + share.place(j) * (8 * kRunsStagedPitch * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::store_shared(s_block + i % 2 * (kRunsStagedPitch * 4) + i / 2 * 32, __float_as_uint(acc.r[4 * j + i]));
    }
  }
  ptx::named_barrier(1, kRunsConsumerThreads);  // all accumulators are written
  const int32_t channels = kChannels >> params.splits_log2, first = tile.first_channel + share.rank * channels;
  if (params.quads) {
    store_runs_channels<Element, 4>(params, tile, first, channels, s_staged);
  } else {
    store_runs_channels<Element, 1>(params, tile, first, channels, s_staged);
  }
}

#endif

// Registers per thread: 2 * 216 + 72 = 3 * 168.
inline constexpr int kRunsConsumerRegisters = 216;
inline constexpr int kRunsLoaderRegisters = 72;

// Does not use hopper::convolve(): the loading warp does not wait for the others, and need not be part of a warpgroup.
template <typename Element, int kChannels>
__global__ void __launch_bounds__(runs_threads(kChannels), kChannels == kRunsPairedChannels ? 2 : 1)
    convolve_runs(const __grid_constant__ RunsParams params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_weights = ptx::shared_address(s_bytes);
  const uint32_t s_source = s_weights + params.slots * params.weights_bytes;
  const uint32_t s_barriers = s_weights + params.barriers_begin, s_sums_barrier = s_barriers + 16 * params.slots;
  const RunsTile tile = runs_tile(params, kChannels);
  const Ring ring(s_barriers, params.slots);
  constexpr int kMeeting = kRunsConsumerThreads + 32;
  if (threadIdx.x >= kRunsConsumerThreads) {
    if constexpr (runs_moves_registers(kChannels)) ptx::setmaxnreg_dec<kRunsLoaderRegisters>();
    if (threadIdx.x >= kRunsConsumerThreads + 32) return;
    if (threadIdx.x == kRunsConsumerThreads) {
      pipeline::init_slots(s_barriers, 0, params.slots, 1, kRunsConsumerThreads / 32);
      ptx::mbarrier_init(s_sums_barrier, 1);
      ptx::fence_mbarrier_init();
      if (params.splits > 1) ptx::mbarrier_expect(s_sums_barrier, params.sums_bytes);
    }
    __syncwarp();
    ptx::named_arrive(1, kMeeting);  // barriers are initialized
    if (params.splits > 1) ptx::cluster_arrive();
    load_runs(params, tile, s_weights, s_source, ring);
    if (params.splits > 1) ptx::cluster_wait();
    return;
  }
  if constexpr (runs_moves_registers(kChannels)) ptx::setmaxnreg_inc<kRunsConsumerRegisters>();
  ptx::named_barrier(1, kMeeting);
  if (params.splits > 1) ptx::cluster_arrive();
  RunsAccumulators<kChannels> acc;
  multiply_runs<Element>(acc, params, tile.end_stage - tile.first_stage, s_weights, s_source, ring);
  const ClusterSlice share = reduce::slice_of_block(params.splits, kChannels);
  if (params.splits > 1) {
    // The other CTAs' slices have a separate buffer, so that no CTA waits for the slowest one before it sends.
    ptx::cluster_wait();  // all CTAs' barriers are initialized
    reduce::reduce_scatter_dsmem_async<kRunsConsumerThreads, 1, kChannels / 8>(
        [&](int) { return acc.r; }, params.splits, share, s_weights + params.sums_begin, s_sums_barrier);
  }
  store_runs_tile<Element>(acc, params, tile, share, s_weights);
#endif
}

}  // namespace convt::patch_sm90a
