// Gradient of the input of depthwise layers in channels_last:
//     gx[ih, iw] = sum over taps, kh then kw ascending, of  gy[ih * S - padding + kh, ...] * w[kh, kw]
// Each row of grad_output is used once, for all rows of gx that read it. The accumulators of these rows are in
// registers. Rows are processed from top to bottom, so that every sum adds its terms in the order of kh. Launched by
// depthwise/launch.cpp.
#pragma once

#include "depthwise/channels_last.cuh"

namespace convt::depthwise {

// kWhole: all columns of grad_output and gx exist.
template <typename Traits, bool kWhole>
struct ChannelsLastGradInput {
  using Element = typename Traits::Element;
  static constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kTaps = Traits::kTaps;
  static constexpr int kVector = Traits::kVector, kPositions = Traits::kPositions, kAhead = Traits::kRowsAhead;
  static_assert(kAhead % kStride == 0);
  using Rows = ChannelsLastRows<Traits, (kPositions - 1) * kStride + kKernel, kWhole>;

  const ChannelsLastParams& params;
  const ChannelsLastWeights<Traits>& weights;
  typename Rows::Row r_rows[kAhead];
  float r_acc[kTaps][kPositions][kVector];  // [0]: the next row of gx to be completed

  // Accumulates the row of grad_output in slot `slot` for all rows of gx that read it.
  __device__ __forceinline__ void add(int slot, const Rows& rows) {
#pragma unroll
    for (int later = 0; later < kTaps; ++later) {
      const int k_h = kKernel - kStride + slot % kStride - later * kStride;
      if (k_h < 0) continue;
#pragma unroll
      for (int k_w = 0; k_w < kKernel; ++k_w) {
        float r_weight[kVector];
        weights.load(k_h * kKernel + k_w, r_weight);
#pragma unroll
        for (int p = 0; p < kPositions; ++p) {
          const int column = p * kStride + k_w;
          if (!rows.has(column)) continue;
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            r_acc[later][p][i] = element::fused_multiply_add(r_rows[slot][column][i], r_weight[i], r_acc[later][p][i]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(int32_t column, Element* g_result) const {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
      if (!kWhole && column + p >= params.w.in) continue;
      typename Traits::Channels results;
      results.round(r_acc[0][p]);
      results.store(g_result + p * params.result_stride[3]);
    }
  }

  __device__ __forceinline__ void next_accumulators() {
#pragma unroll
    for (int later = 0; later < kTaps; ++later) {
#pragma unroll
      for (int p = 0; p < kPositions; ++p) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          r_acc[later][p][i] = later + 1 < kTaps ? r_acc[(later + 1) % kTaps][p][i] : 0.0f;
        }
      }
    }
  }

  // Processes the next kAhead rows of grad_output, from `row` on, which complete rows of gx from ih on. kInside: all of
  // them exist and belong to the CTA.
  template <bool kInside>
  __device__ __forceinline__ void add_group(Rows& rows, int32_t& row, int32_t& ih, const ChannelsLastPlace& place,
                                            Element*& g_result) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      if (kInside || (row >= 0 && row < params.h.out)) add(slot, rows);
      ++row;
      // Load a row after the last use of its slot. Otherwise the compiler would allocate other registers, and the moves
      // from them would wait for the load.
      rows.load(r_rows[slot]);
      if (slot % kStride < kStride - 1) continue;
      if (kInside || ih >= place.row) {
        if (kInside || ih < place.row_end) store(place.column, g_result);
        g_result += params.result_stride[2];
      }
      ++ih;
      next_accumulators();
    }
  }

  __device__ __forceinline__ void run(const ChannelsLastPlace& place) {
#pragma unroll
    for (int later = 0; later < kTaps; ++later) next_accumulators();  // sets all accumulators to +0
    // The first rows of grad_output also contribute to rows of gx above the CTA's first; these are not stored.
    int32_t ih = place.row - (kTaps - 1);
    int32_t row = ih * kStride - params.h.padding + kKernel - kStride;
    const int32_t end = (place.row_end - 1) * kStride - params.h.padding + kKernel;
    Rows rows(params.source, params.source_stride, place, row, min(end, params.h.out),
              place.column * kStride - params.w.padding, params.w.out);
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) rows.load(r_rows[slot]);
    auto* g_result = channels_last_place<Element>(params.result, params.result_stride, place, place.row, place.column);
#pragma unroll 1
    while (ih < place.row_end) {
      if (row >= 0 && row + kAhead <= params.h.out && ih >= place.row && ih + kAhead / kStride <= place.row_end) {
        add_group<true>(rows, row, ih, place, g_result);
      } else {
        add_group<false>(rows, row, ih, place, g_result);
      }
    }
  }
};

template <typename Traits>
__device__ __forceinline__ void channels_last_grad_input(const ChannelsLastParams& params) {
  const ChannelsLastPlace place(params, Traits::kPositions);
  const ChannelsLastWeights<Traits> weights(params, place);
  const int32_t first_column = place.column * Traits::kStride - params.w.padding;
  const bool whole = place.exists && first_column >= 0 && place.column + Traits::kPositions <= params.w.in &&
                     first_column + (Traits::kPositions - 1) * Traits::kStride + Traits::kKernel <= params.w.out;
  if (__all_sync(0xffffffffu, whole) != 0) {
    ChannelsLastGradInput<Traits, true>{params, weights}.run(place);
  } else if (place.exists) {
    ChannelsLastGradInput<Traits, false>{params, weights}.run(place);
  }
}

}  // namespace convt::depthwise
