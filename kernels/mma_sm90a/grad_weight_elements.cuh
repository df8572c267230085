// Main loop of the gradient of the weight. Operands are read element by element, with columns or channels innermost.
// 16-bit elements are multiplied as TF32 numbers, which represent them exactly.
#pragma once

#include "mma_sm90a/grad_weight_tile.cuh"
#include "tiling/strip_loader.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

__device__ __forceinline__ bool is_finite(uint32_t operand) { return (operand & 0x7f800000) != 0x7f800000; }

// Addresses of a lane's elements of its first pixel of a row.
template <typename Traits>
struct LaneOperands {
  uint32_t s_gy[Traits::kRowTiles][2];  // rows lane / 4 and lane / 4 + 8
  uint32_t s_x[Traits::kColumnTiles];
};

// Multiplies a step whose pixels all exist, with all taps inside grad_output, or with zeros for taps outside
// (`kZeros`). Returns false without adding anything if a zero would be multiplied by Inf or NaN.
template <bool kZeros, typename Traits>
__device__ __forceinline__ bool multiply_inside(WeightAccumulators<Traits>& r_acc, const LaneOperands<Traits>& lane,
                                                uint32_t x_offset, uint32_t gy_offset, uint32_t x_next,
                                                uint32_t gy_next) {
  using Element = typename Traits::Element;
  uint32_t b[Traits::kColumnTiles][2];
  bool finite = true;
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
    const uint32_t s_x = lane.s_x[n] + x_offset;
    b[n][0] = load_operand<Element>(s_x), b[n][1] = load_operand<Element>(s_x + x_next);
    if constexpr (kZeros) finite = finite && is_finite(b[n][0]) && is_finite(b[n][1]);
  }
  if (kZeros && !__all_sync(0xffffffffu, finite)) return false;
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
    uint32_t a[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t s_gy = lane.s_gy[m][half] + gy_offset;
      a[half] = load_operand<Element>(s_gy), a[2 + half] = load_operand<Element>(s_gy + gy_next);
    }
#pragma unroll
    for (int n = 0; n < Traits::kColumnTiles; ++n) ptx::mma_tf32(r_acc[m][n], a, b[n]);
  }
  return true;
}

// Multiplies a step with pixels or taps that may not exist, with zeros for missing elements. That is wrong for pixels
// that are Inf or NaN: if there is one, returns false without adding anything.
template <typename Traits>
__device__ __forceinline__ bool multiply_border(WeightAccumulators<Traits>& r_acc, const LaneOperands<Traits>& lane,
                                                uint32_t x_offset, uint32_t gy_offset, uint32_t x_next,
                                                uint32_t gy_next, const Border& border, int32_t pixel_column,
                                                int32_t next_columns, const GemmRow* s_rows) {
  using Element = typename Traits::Element;
  uint32_t b[Traits::kColumnTiles][2];
  bool finite = true;
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool exists = border.column + pixel_column + i * next_columns < border.end_column;
      b[n][i] = exists ? load_operand<Element>(lane.s_x[n] + x_offset + i * x_next) : 0;
      finite = finite && is_finite(b[n][i]);
    }
  }
  if (!__all_sync(0xffffffffu, finite)) return false;
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
    uint32_t a[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const GemmRow row = s_rows[m * 16 + half * 8];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool exists = border.has(row, pixel_column + i * next_columns);
        a[i * 2 + half] = exists ? load_operand<Element>(lane.s_gy[m][half] + gy_offset + i * gy_next) : 0;
      }
    }
#pragma unroll
    for (int n = 0; n < Traits::kColumnTiles; ++n) ptx::mma_tf32(r_acc[m][n], a, b[n]);
  }
  return true;
}

template <typename Traits>
__device__ __forceinline__ void multiply_elements(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                                  const tiling::StagePlace& place, int32_t first_column,
                                                  int32_t last_channel, int32_t end_column, const GemmRow* s_rows) {
  using Element = typename Traits::Element;
  constexpr int32_t kBytes = sizeof(Element);
  const MmaGradWeightLayout& layout = params.layout;
  const int32_t t = static_cast<int32_t>(threadIdx.x) % 4, g = static_cast<int32_t>(threadIdx.x) % 32 / 4;
  const int32_t stride = params.w.stride, lane_pixel = mma_grad_weight_pixel(layout, t);
  const int32_t lane_column = lane_pixel * stride, next_columns = layout.next_pixels * stride;
  const int32_t step_columns = 2 * next_columns;
  LaneOperands<Traits> lane;
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      lane.s_gy[m][half] = place.s_gy + s_rows[m * 16 + half * 8].place + lane_pixel * layout.gy_pixel * kBytes;
    }
  }
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
    const int32_t ci = min(first_column + n * 8 + g, last_channel);
    lane.s_x[n] = place.s_x + (ci * params.pitches.x_channel + lane_pixel * layout.x_pixel) * kBytes;
  }

  const int32_t widest = mma_grad_weight_pixel(layout, 3) * stride + next_columns;  // last pixel of a step
  const InsideSteps inside = inside_steps(params, place.column, end_column, step_columns, widest);
  const uint32_t x_next = layout.next_pixels * layout.x_pixel * kBytes,
                 gy_next = layout.next_pixels * layout.gy_pixel * kBytes;

  int32_t row = place.row;
#pragma unroll 1
  for (int32_t unit = 0; unit < place.units; ++unit, row += params.h.stride) {
    const bool row_inside = row >= 0 && row + (params.block_kh - 1) * params.h.dilation < params.h.out;
    const uint32_t x_unit = unit * params.pitches.x_row * kBytes, gy_unit = unit * params.pitches.gy_position * kBytes;
    int32_t step = 0;
#pragma unroll 1
    while (step < layout.steps) {
      uint32_t x_offset = x_unit + step * 2 * x_next, gy_offset = gy_unit + step * 2 * gy_next;
      if (row_inside && step >= inside.first && step < inside.end) {
#pragma unroll 2
        for (; step < inside.end; ++step) {
          multiply_inside<false, Traits>(r_acc, lane, x_offset, gy_offset, x_next, gy_next);
          x_offset += 2 * x_next, gy_offset += 2 * gy_next;
        }
        continue;
      }
      const int32_t column = place.column + step * step_columns;
      if (column >= end_column) break;
      const Border border{row, column, end_column, params.h.out, params.w.out};
      const bool zeros = params.zero_borders && row_inside && column + widest < end_column;
      if (zeros ? !multiply_inside<true, Traits>(r_acc, lane, x_offset, gy_offset, x_next, gy_next)
                : !multiply_border<Traits>(r_acc, lane, x_offset, gy_offset, x_next, gy_next, border, lane_column,
                                           next_columns, s_rows)) {
        multiply_pixels<Traits>(r_acc, params, border, place.s_gy + gy_offset, place.s_x + x_offset, first_column,
                                last_channel, s_rows);
      }
      ++step;
    }
  }
}

#endif

}  // namespace convt::mma_sm90a
