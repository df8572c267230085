// Multiplies a stage of the gradient of the weight whose 16-bit operands, channels innermost, are read by ldmatrix: a
// tile of 16 rows is 16 output channels of one tap. Where a tap's column does not exist, the stage has zeros
// (PixelLine).
#pragma once

#include "mma_sm90a/grad_weight_tile.cuh"
#include "tiling/strip_loader.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename Element>
__device__ __forceinline__ bool are_finite(uint32_t pair) {
  constexpr uint32_t kExponent = std::is_same_v<Element, __half> ? 0x7c00 : 0x7f80;
  return (pair & kExponent) != kExponent && (pair >> 16 & kExponent) != kExponent;
}

// Where a lane reads the matrices of a row's first step.
template <typename Traits>
struct LaneMatrices {
  uint32_t s_gy[Traits::kRowTiles];
  uint32_t s_x[(Traits::kColumnTiles + 1) / 2];
  int32_t channels;  // of the lane's columns, 8 n: those at `channels` and behind do not exist
};

// A step of 16 pixels. At a border (`kBorder`) tiles of taps whose row of grad_output does not exist are left out:
// their bits of `tiles` are zero. So are elements of both operands: `pixels` masks words 0 and 1 of a lane. Returns
// false, and adds nothing, where zeros would meet an Inf or NaN.
template <bool kBorder, typename Traits>
__device__ __forceinline__ bool multiply_step(WeightAccumulators<Traits>& r_acc, const LaneMatrices<Traits>& lane,
                                              uint32_t x_offset, uint32_t gy_offset, uint32_t tiles,
                                              const uint32_t (&pixels)[2]) {
  using Element = typename Traits::Element;
  uint32_t b[Traits::kColumnTiles][2];
  bool finite = true;
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; n += 2) {
    uint32_t words[4];
    ptx::load_matrices_transposed(words, lane.s_x[n / 2] + x_offset);
#pragma unroll
    for (int i = 0; i < 4 && n + i / 2 < Traits::kColumnTiles; ++i) {
      if constexpr (kBorder) {
        words[i] &= pixels[i % 2];
        finite = finite && (are_finite<Element>(words[i]) || n * 8 + i / 2 * 8 >= lane.channels);
      }
      b[n + i / 2][i % 2] = words[i];
    }
  }
  if (kBorder && !__all_sync(0xffffffffu, finite)) return false;
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
    if (kBorder && (tiles >> m & 1) == 0) continue;
    uint32_t a[4];
    ptx::load_matrices_transposed(a, lane.s_gy[m] + gy_offset);
    if constexpr (kBorder) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] &= pixels[i / 2];
    }
#pragma unroll
    for (int n = 0; n < Traits::kColumnTiles; ++n) {
      if constexpr (std::is_same_v<Element, __half>) {
        ptx::mma_f16(r_acc[m][n], a, b[n]);
      } else {
        ptx::mma_bf16(r_acc[m][n], a, b[n]);
      }
    }
  }
  return true;
}

template <typename Traits>
__device__ __forceinline__ void multiply_matrices(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                                  const tiling::StagePlace& place, int32_t first_column,
                                                  int32_t last_channel, int32_t end_column, const GemmRow* s_rows) {
  constexpr int32_t kBytes = 2, kPixels = Traits::kPixels;
  const MmaGradWeightLayout& layout = params.layout;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, t = lane % 4;
  const GemmRow* s_tiles = s_rows - lane / 4;
  LaneMatrices<Traits> operands;
  operands.channels = last_channel + 1 - first_column - lane / 4;
  // Matrices of rows: pixels 0 to 7 of channels 0 to 7, of channels 8 to 15, then pixels 8 to 15 of these.
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
    operands.s_gy[m] =
        place.s_gy + s_tiles[m * 16].place + ((lane % 8 + lane / 16 * 8) * layout.gy_pixel + lane / 8 % 2 * 8) * kBytes;
  }
  // Of columns: pixels 0 to 7 and 8 to 15 of channels 0 to 7, then of channels 8 to 15.
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; n += 2) {
    const int32_t channel = n * 8 + (n + 1 < Traits::kColumnTiles ? lane / 16 * 8 : 0);
    operands.s_x[n / 2] =
        place.s_x + ((lane % 8 + lane / 8 % 2 * 8) * layout.x_pixel + first_column + channel) * kBytes;
  }

  const int32_t stride = params.w.stride, step_columns = kPixels * stride, widest = step_columns - stride;
  const InsideSteps inside = inside_steps(params, place.column, end_column, step_columns, widest);
  const uint32_t x_step = kPixels * layout.x_pixel * kBytes, gy_step = kPixels * layout.gy_pixel * kBytes;

  int32_t row = place.row;
#pragma unroll 1
  for (int32_t unit = 0; unit < place.units; ++unit, row += params.h.stride) {
    const bool row_inside = row >= 0 && row + (params.block_kh - 1) * params.h.dilation < params.h.out;
    const uint32_t x_unit = unit * params.pitches.x_row * kBytes, gy_unit = unit * params.pitches.gy_position * kBytes;
    int32_t step = 0;
#pragma unroll 1
    while (step < layout.steps) {
      uint32_t x_offset = x_unit + step * x_step, gy_offset = gy_unit + step * gy_step;
      if (row_inside && step >= inside.first && step < inside.end) {
#pragma unroll 2
        for (; step < inside.end; ++step) {
          multiply_step<false, Traits>(r_acc, operands, x_offset, gy_offset, ~0u, {~0u, ~0u});
          x_offset += x_step, gy_offset += gy_step;
        }
        continue;
      }
      const Border border{row, place.column + step * step_columns, end_column, params.h.out, params.w.out};
      if (border.column >= end_column) break;
      uint32_t tiles = 0, pixels[2] = {};
#pragma unroll
      for (int m = 0; m < Traits::kRowTiles; ++m) {
        const int32_t tap_row = row + s_tiles[m * 16].row;
        tiles |= static_cast<uint32_t>(static_cast<uint32_t>(tap_row) < static_cast<uint32_t>(params.h.out)) << m;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t pixel = i / 2 * 8 + t * 2 + i % 2;
        if (border.column + pixel * stride < end_column) pixels[i / 2] |= i % 2 ? 0xffff0000u : 0xffffu;
      }
      if (!multiply_step<true, Traits>(r_acc, operands, x_offset, gy_offset, tiles, pixels)) {
        multiply_pixels<Traits>(r_acc, params, border, place.s_gy + gy_offset, place.s_x + x_offset, first_column,
                                last_channel, s_rows);
      }
      ++step;
    }
  }
}

#endif

}  // namespace convt::mma_sm90a
