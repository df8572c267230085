// Forward pass of depthwise layers in channels_last:
//     y[oh, ow] = bias + sum over taps, kh then kw ascending, of  x[(oh + padding - kh) / S, ...] * w[kh, kw]
// Positions are counted from the padded output's edge: all phases of position q read rows (and columns) q, q - 1, ....
// Launched by depthwise/launch.cpp.
#pragma once

#include "depthwise/channels_last.cuh"

namespace convt::depthwise {

// kWhole: all columns of the source and of the result exist.
template <typename Traits, bool kWhole>
struct ChannelsLastForward {
  using Element = typename Traits::Element;
  static constexpr int kKernel = Traits::kKernel, kStride = Traits::kStride, kTaps = Traits::kTaps;
  static constexpr int kVector = Traits::kVector, kPositions = Traits::kPositions;
  static constexpr int kBefore = kTaps - 1;
  static constexpr int kSlots = channels_last_forward_group(kKernel, kStride, Traits::kRowsAhead);  // rows in registers
  using Rows = ChannelsLastRows<Traits, kPositions + kBefore, kWhole>;

  const ChannelsLastParams& params;
  const ChannelsLastWeights<Traits>& weights;
  float r_bias[kVector];
  typename Rows::Row r_rows[kSlots];
  int32_t first_column;  // of the result; may be negative

  __device__ __forceinline__ ChannelsLastForward(const ChannelsLastParams& parameters, const ChannelsLastPlace& place,
                                                 const ChannelsLastWeights<Traits>& loaded)
      : params(parameters), weights(loaded), first_column(place.column * kStride - parameters.w.padding) {
    const auto* g_bias = static_cast<const Element*>(params.bias);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      // Without a bias, add -0: it leaves every sum unchanged.
      r_bias[i] = g_bias == nullptr ? -0.0f : element::to_accumulator(g_bias[place.channel + i]);
    }
  }

  // Computes all phases of position row q, which is in slot `slot` + kBefore. kAllRows: they and their source rows
  // exist.
  template <bool kAllRows>
  __device__ __forceinline__ void compute(int slot, const Rows& rows, int32_t q, Element* g_result) const {
#pragma unroll
    for (int phase_h = 0; phase_h < kStride; ++phase_h) {
      const int32_t row = q * kStride + phase_h - params.h.padding;
      if (!kAllRows && (row < 0 || row >= params.h.out)) continue;
#pragma unroll
      for (int phase_w = 0; phase_w < kStride; ++phase_w) {
        float r_acc[kPositions][kVector] = {};
#pragma unroll
        for (int t_h = 0; t_h < kTaps; ++t_h) {
          const int k_h = phase_h + kStride * t_h;
          if (k_h >= kKernel || (!kAllRows && (q - t_h < 0 || q - t_h >= params.h.in))) continue;
#pragma unroll
          for (int t_w = 0; t_w < kTaps; ++t_w) {
            const int k_w = phase_w + kStride * t_w;
            if (k_w >= kKernel) continue;
            float r_weight[kVector];
            weights.load(k_h * kKernel + k_w, r_weight);
#pragma unroll
            for (int p = 0; p < kPositions; ++p) {
              const int column = p + kBefore - t_w;
              if (!rows.has(column)) continue;
              const typename Traits::Channels& source = r_rows[(slot + kBefore - t_h) % kSlots][column];
#pragma unroll
              for (int i = 0; i < kVector; ++i) {
                r_acc[p][i] = element::fused_multiply_add(source[i], r_weight[i], r_acc[p][i]);
              }
            }
          }
        }
#pragma unroll
        for (int p = 0; p < kPositions; ++p) {
          const int column = p * kStride + phase_w;
          if (!kWhole && (first_column + column < 0 || first_column + column >= params.w.out)) continue;
#pragma unroll
          for (int i = 0; i < kVector; ++i) r_acc[p][i] = element::add(r_acc[p][i], r_bias[i]);
          typename Traits::Channels results;
          results.round(r_acc[p]);
          results.store(g_result + phase_h * params.result_stride[2] + column * params.result_stride[3]);
        }
      }
    }
  }

  // Computes the next kSlots position rows, from q on. After each, the next source row is loaded into the slot that is
  // no longer needed. kInside: all of them belong to the CTA and have all source rows.
  template <bool kInside>
  __device__ __forceinline__ void compute_group(Rows& rows, int32_t& q, int32_t row_end, Element*& g_result) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      if (kInside || q < row_end) compute<kInside>(slot, rows, q, g_result);
      ++q;
      g_result += kStride * params.result_stride[2];
      rows.load(r_rows[slot]);
    }
  }

  __device__ __forceinline__ void run(const ChannelsLastPlace& place) {
    Rows rows(params.source, params.source_stride, place, place.row - kBefore, min(place.row_end, params.h.in),
              place.column - kBefore, params.w.in);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) rows.load(r_rows[slot]);
    int32_t q = place.row;
    auto* g_result = channels_last_place<Element>(params.result, params.result_stride, place,
                                                  q * kStride - params.h.padding, first_column);
    const int32_t inside_end = min(place.row_end, params.h.in);
#pragma unroll 1
    while (q < place.row_end) {
      const int32_t row = q * kStride - params.h.padding;
      if (q >= kBefore && q + kSlots <= inside_end && row >= 0 && row + kSlots * kStride <= params.h.out) {
        compute_group<true>(rows, q, place.row_end, g_result);
      } else {
        compute_group<false>(rows, q, place.row_end, g_result);
      }
    }
  }
};

template <typename Traits>
__device__ __forceinline__ void channels_last_forward(const ChannelsLastParams& params) {
  const ChannelsLastPlace place(params, Traits::kPositions);
  const ChannelsLastWeights<Traits> weights(params, place);
  const int32_t first_column = place.column * Traits::kStride - params.w.padding;
  const bool whole = place.exists && place.column >= Traits::kTaps - 1 &&
                     place.column + Traits::kPositions <= params.w.in && first_column >= 0 &&
                     first_column + Traits::kPositions * Traits::kStride <= params.w.out;
  if (__all_sync(0xffffffffu, whole) != 0) {
    ChannelsLastForward<Traits, true>(params, place, weights).run(place);
  } else if (place.exists) {
    ChannelsLastForward<Traits, false>(params, place, weights).run(place);
  }
}

}  // namespace convt::depthwise
