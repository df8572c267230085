// Recomputes an element of the gradient of the weight, term by term, if the sum of its slabs is NaN. Kernels that read
// zeros around an image multiply them with NaN or Inf of the other operand, and 0 * Inf is NaN. The definition has no
// such terms. Called by the kernels that add slabs. Must not know: how products were computed.
#pragma once

#include <cstdint>

#include "element/arithmetic.cuh"
#include "reduce/params.h"

namespace convt::reduce {

// `place`: tap row, tap column, input channel, output channel of the group. Returns early once the sum is NaN.
template <typename Element>
__device__ float sum_of_terms(const WeightTerms& terms, const int32_t (&place)[4]) {
  constexpr int32_t kTogether = 8;  // loads in flight
  const Axis &h = terms.h, &w = terms.w;
  const int32_t co = place[2] / terms.group_ci * terms.group_co + place[3];
  const int32_t first_row = place[0] * h.dilation - h.padding + terms.planes.after_tap(place[0]);
  const int32_t first_column = place[1] * w.dilation - w.padding;
  float sum = 0;
#pragma unroll 1
  for (int64_t image = 0; image < terms.batch; ++image) {
    const Element* g_x =
        static_cast<const Element*>(terms.x) + image * terms.x_stride[0] + place[2] * terms.x_stride[1];
    const Element* g_gy = static_cast<const Element*>(terms.gy) + image * terms.gy_stride[0] + co * terms.gy_stride[1];
#pragma unroll 1
    for (int32_t row = 0; row < h.in; ++row) {
      const int64_t out_row = int64_t{row} * h.stride + terms.planes.after_row(row) + first_row;
      if (out_row < 0 || out_row >= h.out) continue;
#pragma unroll 1
      for (int32_t column = 0; column < w.in; column += kTogether) {
#pragma unroll
        for (int32_t i = 0; i < kTogether; ++i) {
          const int64_t out_column = int64_t{column + i} * w.stride + first_column;
          if (column + i >= w.in || out_column < 0 || out_column >= w.out) continue;
          sum = element::fused_multiply_add(
              element::to_accumulator(g_x[row * terms.x_stride[2] + (column + i) * terms.x_stride[3]]),
              element::to_accumulator(g_gy[out_row * terms.gy_stride[2] + out_column * terms.gy_stride[3]]), sum);
        }
        if (isnan(sum)) return sum;
      }
    }
  }
  return sum;
}

}  // namespace convt::reduce
