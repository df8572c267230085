// The scatter kernel: layers with few output channels, whose source is read once for all taps. One warpgroup multiplies
// source rows by the weights of all taps. Contributions are summed along H in accumulators, and along W in shared
// memory. Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "ptx/global.cuh"
#include "ptx/tensor_copy.cuh"
#include "scatter_sm90a/epilogue.cuh"

namespace convt::scatter_sm90a {

// Registers per thread with two CTAs per SM, in tf32x3, which needs accumulators for a run and for a tile.
inline constexpr int kConsumerRegisters = 168, kOtherRegisters = 88;

#ifdef CONVT_HAS_WGMMA

// One thread loads all tiles of the CTA. The innermost coordinate of a copy is a multiple of 16 bytes.
template <typename Shape>
__device__ __forceinline__ void load_tiles(const Params& params, uint32_t s_begin, uint32_t s_barriers) {
  Ring ring(s_barriers, params.stages);
  const uint32_t bytes = static_cast<uint32_t>(params.strips * params.box_channels * params.pitch) * Shape::kElement;
#pragma unroll 1
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
#pragma unroll 1
    for (int32_t row = first_source_row(params, tile); row < tile.end_row; ++row) {
      if (!is_source_row(params, row)) continue;
#pragma unroll 1
      for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
        ring.wait_empty();  // the consumers have released the slot
        ptx::mbarrier_expect(ring.full(), bytes);
        const uint32_t s_stage = s_begin + ring.slot() * params.stage_bytes;
        const int32_t channel = chunk * params.chunk_channels;
        if constexpr (Shape::kChannelsLast) {
          const int32_t at[4] = {channel, tile.source_column, row, tile.image};
          ptx::tensor_copy(s_stage, &params.source, at, ring.full());
        } else {
          const int32_t at[4] = {tile.source_column & -Shape::kVector, row, channel, tile.image};
          ptx::tensor_copy(s_stage, &params.source, at, ring.full());
        }
        ring.advance();
      }
    }
  }
}

// Zero-fills the channels of a stage that copies do not write.
template <typename Shape>
__device__ __forceinline__ void clear_stages(const Params& params, unsigned char* s_bytes) {
  const int32_t begin = params.box_channels * params.pitch * Shape::kElement;
  const int32_t end = params.chunk_channels * params.pitch * Shape::kElement;
#pragma unroll 1
  for (int32_t stage = 0; stage < params.stages; ++stage) {
#pragma unroll 1
    for (int32_t i = begin + static_cast<int32_t>(threadIdx.x) * 16; i < end; i += Shape::kWorkThreads * 16) {
      *reinterpret_cast<uint4*>(s_bytes + stage * params.stage_bytes + i) = uint4{};
    }
  }
}

// Loads the weights as operand B, [term][vector of channels][slot, H phase, channel, tap along W][16 bytes], with zeros
// for missing weights. A thread loads whole vectors of channels of a tap, all in flight at once, so that their
// destination is one address. The code is short because every CTA fetches it from memory.
template <typename Shape>
__device__ __forceinline__ void load_weights(const Params& params, unsigned char* s_weights) {
  using Element = typename Shape::Element;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t begin = 0; begin < params.weight_units; begin += params.weight_threads) {
    int32_t tap, kw, kh, phase;
    const int32_t first = params.by_taps(begin + thread, &tap) * params.weight_batch;
    const int32_t co = params.by_kernel_h(params.by_kernel_w(tap, &kw), &kh);  // adjacent in the usual memory layout
    const int32_t slot = params.by_stride_h(kh, &phase);
    const int32_t column = slot * Shape::kColumns + (phase * params.c_out + co) * params.kernel_w + kw;
    const Element* g_weight = static_cast<const Element*>(params.weight) + first * params.weight_stride[0] +
                              co * params.weight_stride[1] + kh * params.weight_stride[2] +
                              kw * params.weight_stride[3];
    const int32_t channels = min(params.weight_batch, params.c_in - first);
    uint32_t r_weights[kScatterMostWeights];
#pragma unroll
    for (int j = 0; j < kScatterMostWeights; ++j, g_weight += params.weight_stride[0]) {
      if constexpr (Shape::kElement == 4) {
        r_weights[j] = ptx::load_global_or_zero(g_weight, j < channels);
      } else {
        r_weights[j] = ptx::load_global_16_or_zero(g_weight, j < channels);
      }
    }
    if (begin == 0) {
#pragma unroll 1
      for (int32_t i = thread; i < Shape::kTerms * params.steps * 2 * Shape::kN; i += params.weight_threads) {
        reinterpret_cast<uint4*>(s_weights)[i] = uint4{};
      }
      ptx::named_barrier(2, params.weight_threads);  // zeros are written
    }
    const uint32_t s_column = ptx::shared_address(s_weights) + (first / Shape::kVector * Shape::kN + column) * 16;
#pragma unroll
    for (int j = 0; j < kScatterMostWeights; ++j) {
      if (j >= channels) continue;
      const uint32_t s_weight = s_column + j / Shape::kVector * Shape::kN * 16 + j % Shape::kVector * Shape::kElement;
      if constexpr (Shape::kElement == 4) {
        const float weight = __uint_as_float(r_weights[j]), high = ptx::round_tf32(weight);
        ptx::store_shared(s_weight, __float_as_uint(high));
        if constexpr (Shape::kSplit) {
          const float low = ptx::round_tf32(weight - high);
          ptx::store_shared(s_weight + params.steps * 32 * Shape::kN, __float_as_uint(low));
        }
      } else {
        ptx::store_shared_16(s_weight, static_cast<uint16_t>(r_weights[j]));
      }
    }
  }
}

#endif

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2) scatter(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_begin = ptx::shared_address(s_bytes), s_barriers = s_begin + params.barriers_begin;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
  if (warp == Shape::kWorkThreads / 32) {
    if (lane == 0) {
      pipeline::init_slots(s_barriers, 0, params.stages, 1, kConsumerThreads / 32);
      pipeline::init_slots(s_barriers, params.stages, params.stages + 2, kConsumerThreads, Shape::kStoreThreads);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::named_arrive(1, Shape::kThreads);
    ptx::named_arrive(4, Shape::kStoreThreads + 32);
    if constexpr (Shape::kSplit) ptx::setmaxnreg_dec<kOtherRegisters>();
    if (ptx::elect_one()) load_tiles<Shape>(params, s_begin, s_barriers);
    return;
  }
  const bool stores = warp >= kConsumerThreads / 32;
  if (!stores || params.weight_threads > kConsumerThreads) load_weights<Shape>(params, s_bytes + params.weights_begin);
  if (!Shape::kChannelsLast && params.strips == 1) clear_stages<Shape>(params, s_bytes);
  ptx::fence_proxy_async();
  Ring staged_ring(s_barriers + 16 * params.stages, 2);
  if (stores) {
    ptx::named_arrive(1, Shape::kThreads);
    make_tables<Shape>(params, s_bytes);
    ptx::named_barrier(4, Shape::kStoreThreads + 32);  // the tables are complete, barriers are initialized
    if constexpr (Shape::kSplit) ptx::setmaxnreg_dec<kOtherRegisters>();
    store_tiles<Shape>(params, s_bytes, staged_ring);
    return;
  }
  ptx::named_barrier(1, Shape::kThreads);  // the weights are complete, barriers are initialized

  if constexpr (Shape::kSplit) ptx::setmaxnreg_inc<kConsumerRegisters>();
  const auto weights = ptx::MatrixDescriptor::of(s_begin + params.weights_begin, 16 * Shape::kN, 128);
  const uint32_t channel_bytes = params.pitch * Shape::kElement;
  const uint32_t s_warp = s_begin + place_of_lane<Shape>(params, warp, lane);
  Ring ring(s_barriers, params.stages);
#pragma unroll 1
  for (int32_t number = blockIdx.x; number < params.num_tiles; number += gridDim.x) {
    const Tile tile = tile_of(params, number);
    const uint32_t s_mine = s_warp + (Shape::kChannelsLast ? 0 : tile.source_column % Shape::kVector * Shape::kElement);
    Accumulators<Shape> acc;
    element::clear(acc);
#pragma unroll 1
    for (int32_t row = first_source_row(params, tile); row < tile.end_row; ++row) {
      if (is_source_row(params, row)) {
        if constexpr (Shape::kSplit) {
          multiply_split_row<Shape>(acc, params, s_mine, channel_bytes, weights, &ring);
        } else if constexpr (Shape::kChannelsLast) {
          multiply_pixel_row<Shape>(acc, params, s_begin, weights, &ring);
        } else {
          multiply_row<Shape>(acc, params, s_mine, channel_bytes, weights, &ring);
        }
      }
      if (row >= tile.row) {
        staged_ring.wait_empty();  // the buffer's previous contents are stored
        stage_slot<Shape>(acc, params, s_begin + params.staged_begin + staged_ring.slot() * params.staged_bytes);
        ptx::mbarrier_arrive(staged_ring.full());
        staged_ring.advance();
      }
      move_slots<Shape>(acc, params);
    }
  }
#endif
}

}  // namespace convt::scatter_sm90a
