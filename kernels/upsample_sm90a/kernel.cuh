// The upsample engine: layers whose kernel is two strides wide and that have few channels, bound by the stores of their
// result. A CTA keeps the weights of one phase along H for eight phases along W, source rows pass through a ring of
// slots, and warpgroups alternate in position rows: while one multiplies, others store. Called by launch/. Must not
// know: torch, how the plan was chosen.
#pragma once

#include "pipeline/ring.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/tensor_copy.cuh"
#include "upsample_sm90a/instances.h"
#include "upsample_sm90a/mainloop.cuh"

namespace convt::upsample_sm90a {

#ifdef CONVT_HAS_WGMMA

// A source row by elements, as its box would have it: a warp's lanes are columns, of every fourth channel. Each thread
// arrives at the barrier once its copies are there.
template <typename S>
__device__ __forceinline__ void gather_row(const Params& params, int32_t image, int32_t row, int32_t column,
                                           uint32_t s_slot, uint32_t s_barrier) {
  using Element = typename S::Element;
  constexpr int kLoadWarps = kLoadThreads / 32, kPasses = (S::kPitch + 31) / 32;
  constexpr int kBatch = 3;  // channels whose loads are on their way at once
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 - kWarps, lane = static_cast<int32_t>(threadIdx.x) % 32;
  const Element* g_row = static_cast<const Element*>(params.source) + image * params.source_stride[0] +
                         row * params.source_stride[2] + (column + lane) * params.source_stride[3];
  const bool row_exists = row >= 0 && row < params.h.in;
#pragma unroll 1
  for (int32_t first = warp; first < kUpsampleChannels; first += kBatch * kLoadWarps) {
    uint32_t words[kBatch][kPasses];
#pragma unroll
    for (int i = 0; i < kBatch * kPasses; ++i) {
      const int32_t channel = first + i / kPasses * kLoadWarps, at = lane + i % kPasses * 32;
      const bool exists = row_exists && channel < params.c_in && column + at >= 0 && column + at < params.w.in;
      const Element* g_element = g_row + channel * params.source_stride[1] + i % kPasses * 32 * params.source_stride[3];
      const uint32_t s_element = s_slot + (channel * S::kPitch + at) * S::kElement;
      if constexpr (S::kElement == 4) {
        if (at < S::kPitch) ptx::cp_async_or_zero<4>(s_element, exists ? g_element : params.source, exists);
      } else {
        words[i / kPasses][i % kPasses] = ptx::load_global_16_or_zero(g_element, exists);
      }
    }
    if constexpr (S::kElement == 2) {
#pragma unroll
      for (int i = 0; i < kBatch * kPasses; ++i) {
        const int32_t channel = first + i / kPasses * kLoadWarps, at = lane + i % kPasses * 32;
        const uint32_t s_element = s_slot + (channel * S::kPitch + at) * S::kElement;
        if (at < S::kPitch) ptx::store_shared_16(s_element, static_cast<uint16_t>(words[i / kPasses][i % kPasses]));
      }
    }
  }
  if constexpr (S::kElement == 4) {
    ptx::mbarrier_arrive_after_copies(s_barrier);
  } else {
    ptx::mbarrier_arrive(s_barrier);
  }
}

// All source rows of the CTA's tiles; by boxes, one thread alone. A box begins on a multiple of 16 bytes.
template <typename S>
__device__ __forceinline__ void load_tiles(const Params& params, const Operand& operand, int32_t share,
                                           uint32_t s_begin, uint32_t s_barriers) {
  int32_t number = 0;
#pragma unroll 1
  for (int32_t i = share; i < params.num_tiles; i += params.shares) {
    const Tile tile = tile_of(params, i);
    const int32_t column = (tile.column + operand.source_w) & -S::kVector;
    const int32_t first = tile.row + operand.source_h - 1;
#pragma unroll 1
    for (int32_t row = first; row <= first + tile.rows; ++row, ++number) {
      const Place place = place_of(params, number);
      const uint32_t s_barrier = s_barriers + 16 * place.slot, s_slot = s_begin + place.slot * params.slot_bytes;
      ptx::mbarrier_wait(s_barrier + 8, place.parity ^ 1);  // what was here has been read; at first nothing was
      if (params.by_boxes) {
        ptx::mbarrier_expect(s_barrier, params.slot_bytes);
        const int32_t at[4] = {column, row, 0, tile.image};
        ptx::tensor_copy(s_slot, &params.map, at, s_barrier);
      } else {
        gather_row<S>(params, tile.image, row, column, s_slot, s_barrier);
      }
    }
  }
}

// Four neighbouring taps.
template <typename S>
struct alignas(4 * S::kElement) Taps {
  typename S::Element taps[4];
};

template <typename S>
__device__ __forceinline__ Taps<S> load_taps(const Params& params, const typename S::Element* g_taps, bool exist) {
  Taps<S> taps{};
  if (params.weight_on_vectors) {
    uint32_t words[S::kElement];
    ptx::load_global_or_zero(words, g_taps, exist);
    memcpy(&taps, words, sizeof(taps));
  } else if (exist) {
#pragma unroll
    for (int i = 0; i < 4; ++i) taps.taps[i] = g_taps[i * params.weight_stride[3]];
  }
  return taps;
}

// The weights as second operands, [quad][tap row][step][16 bytes of K][96 columns], zeros where there is no channel. K
// of TF32 is (tap along W, channel), of half precision (channel, tap along W), the taps that of the earlier source
// column first. Column 16 * (c / 4) + 8 * (e / 2) + 2 * (c % 4) + e % 2 is channel c in phase e of the quad; of TF32,
// every second channel and the one before it are exchanged in the second quad, so that two lanes hold an octet of one
// channel. Lanes are 4 x 4 channels of both quads: all of their stores are in different banks.
template <typename S>
__device__ __forceinline__ void load_weights(const Params& params, const Operand& operand, unsigned char* s_weights) {
  using Element = typename S::Element;
  constexpr int kBlocks = kUpsampleChannels / 4;
  constexpr int kUnits = 2 * kBlocks * kBlocks / kWarps;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
  const int32_t quad = lane & 1, ci_mine = lane / 2 % 4, co_mine = lane / 8;
  const int32_t kw = (8 * operand.octet + 4 * quad + params.w.padding) % params.w.stride;  // a multiple of 4
  const Element* g_weight = static_cast<const Element*>(params.weight) + operand.channel * params.weight_stride[1] +
                            operand.tap_h * params.weight_stride[2] + kw * params.weight_stride[3];
  Taps<S> taps[kUnits][2];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int32_t unit = warp + i * kWarps, th = unit / (kBlocks * kBlocks);
    const int32_t ci = unit / kBlocks % kBlocks * 4 + ci_mine, co = unit % kBlocks * 4 + co_mine;
    const Element* g_taps = g_weight + ci * params.weight_stride[0] + co * params.weight_stride[1] +
                            th * params.h.stride * params.weight_stride[2];
    const bool exist = ci < params.c_in && operand.channel + co < params.c_out && th < operand.taps_h;
#pragma unroll
    for (int tw = 0; tw < 2; ++tw) {
      taps[i][tw] = load_taps<S>(params, g_taps + tw * params.w.stride * params.weight_stride[3], exist);
    }
  }
  ptx::named_arrive(1, kUpsampleThreads);  // loads are on their way
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int32_t unit = warp + i * kWarps, th = unit / (kBlocks * kBlocks);
    const int32_t ci = unit / kBlocks % kBlocks * 4 + ci_mine, co_block = unit % kBlocks;
    const int32_t place = S::kElement == 4 ? co_mine ^ quad : co_mine;
    unsigned char* s_taps =
        s_weights + (2 * quad + th) * S::kOperandBytes + 16 * quad + (16 * co_block + 2 * place) * 16;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      unsigned char* s_tap = s_taps + (e / 2 * 8 + e % 2) * 16;
      if constexpr (S::kElement == 4) {
#pragma unroll
        for (int tw = 0; tw < 2; ++tw) {
          *reinterpret_cast<float*>(s_tap + (tw * 3 + ci / 8) * kUpsampleStepBytes +
                                    ci / 4 % 2 * (kUpsampleStepBytes / 2) + ci % 4 * 4) =
              ptx::round_tf32(taps[i][tw].taps[e]);
        }
      } else {
        const Element pair[2] = {taps[i][1].taps[e], taps[i][0].taps[e]};
        memcpy(s_tap + ci / 8 * kUpsampleStepBytes + ci / 4 % 2 * (kUpsampleStepBytes / 2) + ci % 4 * 4, pair, 4);
      }
    }
  }
}

// A source row that only other warpgroups read. Every warp waits for every row, in order, and releases it: a barrier's
// parity tells one filling of a slot from the next but not from later ones, and rows arrive in any order.
__device__ __forceinline__ void pass_row(const Params& params, int32_t number, uint32_t s_barriers) {
  const Place place = place_of(params, number);
  ptx::mbarrier_wait(s_barriers + 16 * place.slot, place.parity);
  pipeline::release(s_barriers + 16 * place.slot + 8);
}

#endif

template <typename S>
__global__ void __launch_bounds__(kUpsampleThreads, 1) upsample(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename S::Element;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_begin = ptx::shared_address(s_bytes), s_barriers = s_begin + params.barriers_begin;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
  const int32_t share = blockIdx.x / params.num_operands;
  const Operand operand = operand_of(params, blockIdx.x - share * params.num_operands);
  if (warp >= kWarps) {
    ptx::give_registers<56>();
    if (thread == kConsumerThreads) {
      pipeline::init_slots(s_barriers, 0, params.slots.value, params.by_boxes ? 1 : kLoadThreads, kWarps);
      ptx::fence_mbarrier_init();
    }
    ptx::named_barrier(1, kUpsampleThreads);  // the barriers exist, and the weights are on their way
    if (thread == kConsumerThreads || !params.by_boxes) load_tiles<S>(params, operand, share, s_begin, s_barriers);
    return;
  }
  ptx::take_registers<152>();
  auto* s_bias = reinterpret_cast<float*>(s_bytes + params.bias_begin);
  if (thread < kUpsampleChannels) {
    const bool exists = params.bias != nullptr && operand.channel + thread < params.c_out;
    s_bias[thread] =
        exists ? element::to_accumulator(static_cast<const Element*>(params.bias)[operand.channel + thread]) : 0.0f;
  }
  load_weights<S>(params, operand, s_bytes + params.weights_begin);
  ptx::fence_proxy_async();
  ptx::named_barrier(2, kConsumerThreads);  // the weights are complete

  const auto weights = ptx::MatrixDescriptor::of(s_begin + params.weights_begin, kUpsampleStepBytes / 2, 128);
  const int32_t position = warp % 4 * 16 + lane / 4;
  int32_t number = 0, seen = 0, q_h = warp / 4;
#pragma unroll 1
  for (int32_t i = share; i < params.num_tiles; i += params.shares) {
    const Tile tile = tile_of(params, i);
    const int32_t source_column = position + ((tile.column + operand.source_w) & (S::kVector - 1));
    const int32_t result_column = (tile.column + position) * params.w.stride + 8 * operand.octet;
    auto* g_tile = static_cast<Element*>(params.result) + tile.image * params.result_stride[0] +
                   operand.channel * params.result_stride[1] + result_column;
#pragma unroll 1
    for (; q_h < tile.rows; q_h += kWarps / 4) {
      for (; seen < number + q_h; ++seen) pass_row(params, seen, s_barriers);
      const Place older = place_of(params, seen++), newer = place_of(params, seen++);
      ptx::mbarrier_wait(s_barriers + 16 * older.slot, older.parity);
      ptx::mbarrier_wait(s_barriers + 16 * newer.slot, newer.parity);
      const uint32_t s_rows[2] = {s_begin + newer.slot * params.slot_bytes, s_begin + older.slot * params.slot_bytes};
      Accumulators acc;
      multiply_rows<S>(acc, s_rows, source_column, operand, weights);
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(s_barriers + 16 * older.slot + 8);
        ptx::mbarrier_arrive(s_barriers + 16 * newer.slot + 8);
      }
      const int32_t h = (tile.row + q_h) * params.h.stride + operand.phase_h;
      if (h < params.h.out) {
        store_row<S>(params, acc, g_tile + h * params.result_stride[2], params.c_out - operand.channel,
                     params.w.out - result_column, s_bias);
      }
    }
    q_h -= tile.rows;
    number += tile.rows + 1;
  }
  for (; seen < number; ++seen) pass_row(params, seen, s_barriers);
#endif
}

}  // namespace convt::upsample_sm90a

// What instances/ expands CONVT_UPSAMPLE_INSTANCES with.
#define CONVT_UPSAMPLE_INSTANCE(symbol, dtype, precision) \
  CONVT_DEFINE_KERNEL(upsample_sm90a, symbol, upsample<Shape<DataType::dtype>>)
