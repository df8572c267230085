// The upsample engine: layers whose kernel is two strides wide and that have few channels, bound by the stores of their
// result. A CTA keeps the weights of one phase along H for eight phases along W, source rows pass through a ring of
// slots, and warpgroups take turns in position rows: while one multiplies, others store. Called by launch/. Must not
// know: torch, how the plan was chosen.
#pragma once

#include "upsample_sm90a/epilogue.cuh"
#include "upsample_sm90a/loader.cuh"

namespace convt::upsample_sm90a {

#ifdef CONVT_HAS_WGMMA

// A source row that only other warpgroups read. Every warp waits for every row, in order, and leaves it: a barrier's
// parity tells one filling from the next, no more, and rows arrive in any order.
__device__ __forceinline__ void pass_row(const Params& params, int32_t number, uint32_t s_barriers) {
  const Place place = place_of(params, number);
  ptx::mbarrier_wait(s_barriers + 16 * place.slot, place.parity);
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(s_barriers + 16 * place.slot + 8);
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
#pragma unroll 1
      for (int32_t i = 0; i < params.slots.value; ++i) {
        ptx::mbarrier_init(s_barriers + 16 * i, params.by_boxes ? 1 : kLoadThreads);
        ptx::mbarrier_init(s_barriers + 16 * i + 8, kWarps);
      }
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
  int32_t number = 0, seen = 0, turn = warp / 4;
#pragma unroll 1
  for (int32_t i = share; i < params.num_tiles; i += params.shares) {
    const Tile tile = tile_of(params, i);
    const int32_t source_column = position + ((tile.column + operand.source_w) & (S::kVector - 1));
    const int32_t result_column = (tile.column + position) * params.w.stride + 8 * operand.octet;
    auto* g_tile = static_cast<Element*>(params.result) + tile.image * params.result_stride[0] +
                   operand.channel * params.result_stride[1] + result_column;
#pragma unroll 1
    for (; turn < tile.rows; turn += kWarps / 4) {
      for (; seen < number + turn; ++seen) pass_row(params, seen, s_barriers);
      const Place older = place_of(params, seen++), newer = place_of(params, seen++);
      ptx::mbarrier_wait(s_barriers + 16 * older.slot, older.parity);
      ptx::mbarrier_wait(s_barriers + 16 * newer.slot, newer.parity);
      const uint32_t s_rows[2] = {s_begin + newer.slot * params.slot_bytes, s_begin + older.slot * params.slot_bytes};
      Accumulators sums;
      multiply_rows<S>(sums, s_rows, source_column, operand, weights);
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(s_barriers + 16 * older.slot + 8);
        ptx::mbarrier_arrive(s_barriers + 16 * newer.slot + 8);
      }
      const int32_t h = (tile.row + turn) * params.h.stride + operand.phase_h;
      if (h < params.h.out) {
        store_row<S>(params, sums, g_tile + h * params.result_stride[2], params.c_out - operand.channel,
                     params.w.out - result_column, s_bias);
      }
    }
    turn -= tile.rows;
    number += tile.rows + 1;
  }
  for (; seen < number; ++seen) pass_row(params, seen, s_barriers);
#endif
}

}  // namespace convt::upsample_sm90a
