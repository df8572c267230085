// mma_rows: shared memory -> global memory, one bulk copy per channel.
#pragma once

#include "mma_sm90a/rows_source.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// A channel's bias, or -0 without bias. Adding -0 changes no value, not even -0.
template <typename Element>
__device__ __forceinline__ float bias_of(const Params& params, const Pass& pass, int32_t co) {
  if (params.bias == nullptr) return -0.0f;
  return element::to_accumulator(
      static_cast<const Element*>(params.bias)[int64_t{pass.group} * params.group_co + pass.co + co]);
}

// The value of a result without taps: the bias, or +0.
template <typename Element>
__device__ __forceinline__ Element empty_of(const Params& params, const Pass& pass, int32_t co) {
  return element::to_element<Element>(element::add(0.0f, bias_of<Element>(params, pass, co)));
}

template <typename Element>
__device__ __forceinline__ void stage_element(uint32_t s_to, float value) {
  if constexpr (sizeof(Element) == 4) {
    ptx::store_shared(s_to, __float_as_uint(value));
  } else {
    const Element rounded = element::to_element<Element>(value);
    ptx::store_shared_16(s_to, reinterpret_cast<const uint16_t&>(rounded));
  }
}

// Fills all elements of a slot with the value of results without taps.
template <typename Traits>
__device__ __forceinline__ void fill_slot(const Params& params, const Pass& pass, typename Traits::Element* s_results,
                                          int32_t thread, int32_t threads) {
  using Element = typename Traits::Element;
  const int32_t elements = params.tile_h * params.row_step;
#pragma unroll 1
  for (int32_t co = 0; co < pass.num_co; ++co) {
    const Element empty = empty_of<Element>(params, pass, co);
#pragma unroll 4
    for (int32_t i = thread; i < elements; i += threads) s_results[co * params.stage_channel + i] = empty;
  }
}

template <typename Traits>
__device__ __forceinline__ void store_tile(const Params& params, const Pass& pass, int32_t index, int64_t origin,
                                           const typename Traits::Element* s_results) {
  using Element = typename Traits::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  constexpr int32_t kGranule = 2 * Traits::kVector;  // elements per sector
  const int32_t row = tile_of(params, index).q_h * params.h.out_stride - params.h.out_origin;
  const int32_t begin = max(-row, 0) * params.w.out;
  const int32_t end = min(params.tile_h * params.h.out_stride, params.h.out - row) * params.w.out;
  auto* g_tile = static_cast<Element*>(params.result) + origin;
#pragma unroll 1
  for (int32_t co = lane; co < pass.num_co; co += 32) {
    Element* g_channel = g_tile + co * params.result_stride[1];
    const auto at = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_channel) / sizeof(Element));
    const int32_t body = begin + (-(at + begin) & (kGranule - 1)), body_end = end - ((at + end) & (kGranule - 1));
    ptx::bulk_store(g_channel + body, ptx::shared_address(s_results + co * params.stage_channel + body),
                    (body_end - body) * static_cast<int32_t>(sizeof(Element)));
  }
  ptx::bulk_commit();
  // The elements before and after whole sectors.
#pragma unroll 1
  for (int32_t item = lane; item < pass.num_co * 2 * kGranule; item += 32) {
    const int32_t co = item / (2 * kGranule), edge = item % (2 * kGranule);
    Element* g_channel = g_tile + co * params.result_stride[1];
    const auto at = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_channel) / sizeof(Element));
    const bool head = edge < kGranule;
    const int32_t element = head ? begin + edge : end - 1 - (edge - kGranule);
    const int32_t count = head ? -(at + begin) & (kGranule - 1) : (at + end) & (kGranule - 1);
    if (edge % kGranule < count) g_channel[element] = s_results[co * params.stage_channel + element];
  }
}

// Loop of storing warp number `storer`, which stores every kMmaRowsStorers-th slot.
template <typename Traits>
__device__ __forceinline__ void store_rows(const Params& params, const Pass& pass, const RowsTiles& tiles,
                                           typename Traits::Element* s_slots, uint32_t s_barriers, int32_t storer) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  int32_t slot = 0, round = 0, last_round = 0;
  uint32_t s_last = s_barriers;
#pragma unroll 1
  for (int32_t tile = 0; tile < tiles.count; ++tile) {
    if (slot % kMmaRowsStorers == storer) {
      const uint32_t s_full = s_barriers + slot * 16, s_empty = s_full + 8;
      auto* s_slot = s_slots + slot * params.slot_elements;
      ptx::mbarrier_wait(s_full, round & 1);
      const int64_t origin = rows_origin(params, pass, tile_of(params, tiles[tile]));
      const int32_t shift = rows_shift(params, origin);
      store_tile<Traits>(params, pass, tiles[tile], origin, s_slot + shift);
      ptx::bulk_wait_read();
      __syncwarp();  // all lanes' copies have read shared memory
      if (tile + params.slots < tiles.count) {
        const int32_t next = rows_shift(params, rows_origin(params, pass, tile_of(params, tiles[tile + params.slots])));
        if (next != shift) {
          fill_slot<Traits>(params, pass, s_slot + next, lane, 32);
          ptx::fence_proxy_async();
        }
      }
      // Slots are released in the order of their tiles. The other warp may have stored the previous tile.
      if (tile > 0) ptx::mbarrier_wait(s_last + 8, last_round & 1);
      ptx::mbarrier_arrive(s_empty);
    }
    s_last = s_barriers + slot * 16, last_round = round;
    if (++slot == params.slots) slot = 0, ++round;
  }
}

#endif

}  // namespace convt::mma_sm90a
