// Small layers: a thread computes a result straight from global memory. No table, no barrier and little code, because a
// launch that takes five microseconds is made of latencies: of the launch, of cold instructions, of two or three loads
// that wait for each other. Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "direct/params.h"
#include "element/arithmetic.cuh"

namespace convt::direct {

// A walk over the terms of a result, in the order of its sum: channels, then tap rows, then tap columns.
class DirectTerms {
 public:
  int32_t source;  // elements from the first channel's first element of the group
  int32_t weight;  // elements from the first channel's first tap of the phases

  __device__ __forceinline__ DirectTerms(const DirectParams& params, const Phase& h, const Phase& w, int32_t position_h,
                                         int32_t position_w)
      : weight(0),
        taps_h_(h.num_taps),
        taps_w_(w.num_taps),
        first_row_(position_h * params.row_step + h.first_shift),
        first_column_(position_w * params.column_step + w.first_shift),
        row_(first_row_),
        column_(first_column_),
        row_step_(h.shift_step),
        column_step_(w.shift_step) {
    const auto channel = static_cast<int32_t>(params.source_stride[1]);
    const auto row = static_cast<int32_t>(params.source_stride[2]);
    const auto column = static_cast<int32_t>(params.source_stride[3]);
    source = first_row_ * row + first_column_ * column;
    source_w_ = -column_step_ * column;
    source_h_ = -row_step_ * row - taps_w_ * source_w_;
    source_c_ = channel + taps_h_ * row_step_ * row;
    weight_w_ = w.tap_step * params.weight_stride[3];
    weight_h_ = h.tap_step * params.weight_stride[2] - taps_w_ * weight_w_;
    weight_c_ = params.weight_stride[0] - taps_h_ * h.tap_step * params.weight_stride[2];
  }

  __device__ __forceinline__ bool is_inside(const DirectParams& params) const {
    return static_cast<uint32_t>(row_) < static_cast<uint32_t>(params.rows) &&
           static_cast<uint32_t>(column_) < static_cast<uint32_t>(params.columns);
  }

  __device__ __forceinline__ void next() {
    column_ -= column_step_, source += source_w_, weight += weight_w_;
    if (++tap_w_ < taps_w_) return;
    tap_w_ = 0, column_ = first_column_;
    row_ -= row_step_, source += source_h_, weight += weight_h_;
    if (++tap_h_ < taps_h_) return;
    tap_h_ = 0, row_ = first_row_;
    source += source_c_, weight += weight_c_;
  }

 private:
  int32_t taps_h_, taps_w_;
  int32_t first_row_, first_column_;
  int32_t row_, column_;
  int32_t row_step_, column_step_;
  int32_t tap_h_ = 0, tap_w_ = 0;
  // From one term to the next: of the same tap row, more where a row of taps ends, more where a channel ends.
  int32_t source_w_, source_h_, source_c_;
  int32_t weight_w_, weight_h_, weight_c_;
};

template <typename Element>
__global__ void __launch_bounds__(kDirectThreads) direct_kernel(const __grid_constant__ DirectParams params) {
  const auto number = static_cast<int32_t>(blockIdx.x * kDirectThreads + threadIdx.x);
  if (number >= params.results) return;
  int32_t digits[3];
  int32_t image = number;
#pragma unroll
  for (int i = 0; i < 3; ++i) image = params.by_digits[i](image, &digits[i]);
  const int32_t channel = params.channels_last ? digits[0] : digits[2];
  const int32_t column = params.channels_last ? digits[1] : digits[0];
  const int32_t row = params.channels_last ? digits[2] : digits[1];
  int32_t phase_h, phase_w, channel_of_group;
  const int32_t position_h = params.by_phases_h(row, &phase_h), position_w = params.by_phases_w(column, &phase_w);
  const int32_t group = params.by_group_co(channel, &channel_of_group);
  const Phase h = params.phases_h[phase_h], w = params.phases_w[phase_w];
  const auto* g_source = static_cast<const Element*>(params.source) + image * params.source_stride[0] +
                         int64_t{group} * params.group_ci * params.source_stride[1];
  const auto* g_weight = static_cast<const Element*>(params.weight) + group * params.weight_group_stride +
                         (channel_of_group * params.weight_stride[1] + h.first_tap * params.weight_stride[2] +
                          w.first_tap * params.weight_stride[3]);
  // Without bias -0, the one number that changes no sum.
  const float bias =
      params.bias == nullptr ? -0.0f : element::to_accumulator(static_cast<const Element*>(params.bias)[channel]);
  const int32_t terms = h.num_taps * w.num_taps * params.group_ci;
  DirectTerms term(params, h, w, position_h, position_w);
  float sum = 0;
#pragma unroll 1
  for (int32_t begin = 0; begin < terms; begin += kDirectBatch) {
    Element source[kDirectBatch], weight[kDirectBatch];
    bool exists[kDirectBatch];
#pragma unroll
    for (int i = 0; i < kDirectBatch; ++i, term.next()) {
      exists[i] = begin + i < terms && term.is_inside(params);
      if (exists[i]) source[i] = g_source[term.source], weight[i] = g_weight[term.weight];
    }
#pragma unroll
    for (int i = 0; i < kDirectBatch; ++i) {
      if (!exists[i]) continue;
      sum = element::fused_multiply_add(element::to_accumulator(source[i]), element::to_accumulator(weight[i]), sum);
    }
  }
  static_cast<Element*>(params.result)[image * params.result_stride[0] + channel * params.result_stride[1] +
                                       row * params.result_stride[2] + column * params.result_stride[3]] =
      element::to_element<Element>(element::add(sum, bias));
}

}  // namespace convt::direct
