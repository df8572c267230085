// Gradient of the weight: the tile of a warp, rows of the GEMM, and exact steps without tensor cores.
#pragma once

#include "element/arithmetic.cuh"
#include "mma_sm90a/grad_weight_layout.h"
#include "ptx/mma_sm80.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::mma_sm90a {

template <DataType kDataTypeValue, int kRowTilesValue, int kColumnTilesValue, WeightOperands kOperandsValue>
struct GradWeightTraits {
  static constexpr DataType kDataType = kDataTypeValue;
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kRowTiles = kRowTilesValue;  // of 16 rows, per warp
  static constexpr int kColumnTiles = kColumnTilesValue;  // of 8 columns, per warp
  static constexpr bool kChannelsInner = kOperandsValue == WeightOperands::kPixels;
};

#ifdef CONVT_HAS_WGMMA

template <typename Traits>
using WeightAccumulators = float[Traits::kRowTiles][Traits::kColumnTiles][4];

// Table entry of a row of the GEMM.
struct GemmRow {
  int32_t place;   // byte offset in a stage from grad_output's element of row 0
  int32_t row;     // row and column of grad_output, relative to those of tap 0
  int32_t column;
  int32_t weight;  // row of a slab; -1: does not exist
};

// Loads an element from shared memory as a TF32 operand.
template <typename Element>
__device__ __forceinline__ uint32_t load_operand(uint32_t s_element) {
  if constexpr (sizeof(Element) == 4) {
    return __float_as_uint(ptx::round_tf32(__uint_as_float(ptx::load_shared(s_element))));
  } else if constexpr (std::is_same_v<Element, __half>) {
    return __float_as_uint(__half2float(__ushort_as_half(static_cast<unsigned short>(ptx::load_shared_16(s_element)))));
  } else {
    return ptx::load_shared_16(s_element) << 16;
  }
}

// Coordinates of a step with pixels or taps that may not exist.
struct Border {
  int32_t row;         // row of grad_output that tap row 0 reads
  int32_t column;      // column that tap column 0 reads for the step's first pixel
  int32_t end_column;  // column that it would read for the first pixel past the end
  int32_t out_h;
  int32_t out_w;

  __device__ __forceinline__ bool has(const GemmRow& row_of, int32_t pixel_column) const {
    return column + pixel_column < end_column &&
           static_cast<uint32_t>(row + row_of.row) < static_cast<uint32_t>(out_h) &&
           static_cast<uint32_t>(column + pixel_column + row_of.column) < static_cast<uint32_t>(out_w);
  }
};

// Range of steps of a row of pixels for which all pixels and all taps of the CTA exist.
struct InsideSteps {
  int32_t first;
  int32_t end;
};

// `column` is the column that tap column 0 reads for the row's first pixel. `step_columns` and `widest` are the
// distances from a step's first pixel to the next step's first and to its own last.
__device__ __forceinline__ InsideSteps inside_steps(const GradWeightParams& params, int32_t column, int32_t end_column,
                                                    int32_t step_columns, int32_t widest) {
  const int32_t last_tap = (params.layout.block_kw - 1) * params.w.dilation;
  const int32_t limit = min(params.w.out - 1 - last_tap, end_column - 1) - widest;
  int32_t rest;
  const int32_t first = params.by_step_columns(max(0, step_columns - 1 - column), &rest);
  const int32_t end = limit < column ? 0 : min(params.layout.steps, params.by_step_columns(limit - column, &rest) + 1);
  return InsideSteps{first, end};
}

// Multiplies a step pixel by pixel without tensor cores: only the products that exist.
template <typename Traits>
__device__ __forceinline__ void multiply_pixels(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                                const Border& border, uint32_t s_gy, uint32_t s_x, int32_t first_column,
                                                int32_t last_channel, const GemmRow* s_rows) {
  using Element = typename Traits::Element;
  constexpr int32_t kBytes = sizeof(Element);
  const MmaGradWeightLayout& layout = params.layout;
  const int32_t t = static_cast<int32_t>(threadIdx.x) % 4;
#pragma unroll 1
  for (int32_t k = 0; k < kMmaGradWeightPixels; ++k) {
    const int32_t pixel = mma_grad_weight_pixel(layout, k % 4) + k / 4 * layout.next_pixels;
    const int32_t column = pixel * params.w.stride;
    if (border.column + column >= border.end_column) continue;
    float r_x[Traits::kColumnTiles][2];
#pragma unroll
    for (int n = 0; n < Traits::kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int32_t ci = min(first_column + n * 8 + t * 2 + i, last_channel);
        const int32_t place = ci * params.pitches.x_channel + pixel * layout.x_pixel;
        r_x[n][i] = __uint_as_float(load_operand<Element>(s_x + place * kBytes));
      }
    }
#pragma unroll
    for (int m = 0; m < Traits::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const GemmRow row = s_rows[m * 16 + half * 8];
        if (!border.has(row, column)) continue;
        const float gy = __uint_as_float(load_operand<Element>(s_gy + row.place + pixel * layout.gy_pixel * kBytes));
#pragma unroll
        for (int n = 0; n < Traits::kColumnTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            r_acc[m][n][half * 2 + i] = __fmaf_rn(gy, r_x[n][i], r_acc[m][n][half * 2 + i]);
          }
        }
      }
    }
  }
}

#endif

}  // namespace convt::mma_sm90a
