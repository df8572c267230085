// The gradient of the weight of few channels on tensor cores:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, ih, iw) of
//                            x[n, ci, ih, iw] * gy[n, co, ih * stride - padding + kh * dilation, ...]
// Rows of a product are (co, kh, kw), its columns ci, K 8 pixels of a row, both operands read from shared memory as
// they lie in global memory. plan/mma_grad_weight.h says what a CTA owns. Halves are multiplied as TF32 numbers, which
// all of them are. Called by launch/. Must not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "mma_sm90a/grad_weight_params.h"
#include "ptx/mma_sm80.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "thin/grad_weight_loader.cuh"

namespace convt::mma_sm90a {

template <DataType kDataTypeValue, int kRowTilesValue, int kColumnTilesValue>
struct GradWeightTraits {
  static constexpr DataType kDataType = kDataTypeValue;
  using Element = typename simt::ElementOf<kDataType>::type;
  static constexpr int kRowTiles = kRowTilesValue;  // of 16, of a warp
  static constexpr int kColumnTiles = kColumnTilesValue;  // of 8
};

#ifdef CONVT_HAS_WGMMA

template <typename Traits>
using WeightSums = float[Traits::kRowTiles][Traits::kColumnTiles][4];

// A row of the GEMM as the table has it.
struct GemmRow {
  int32_t place;   // bytes of a stage from grad_output's element of row 0
  int32_t row;     // of grad_output, from the one that tap 0 reads
  int32_t column;
  int32_t weight;  // element of a channel's taps in a slab, or -1: it does not exist
};

// An element of shared memory as an operand.
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

__device__ __forceinline__ bool is_finite(uint32_t operand) { return (operand & 0x7f800000) != 0x7f800000; }

// A lane's part of a stage: addresses of its first pixel's elements of a row of pixels.
template <typename Traits>
struct LaneOperands {
  uint32_t s_gy[Traits::kRowTiles][2];  // rows lane / 4 and lane / 4 + 8
  uint32_t s_x[Traits::kColumnTiles];
};

// Pixels that all exist, with all taps.
template <typename Traits>
__device__ __forceinline__ void multiply_inside(WeightSums<Traits>& r_sums, const LaneOperands<Traits>& lane,
                                                uint32_t x_offset, uint32_t gy_offset, uint32_t x_next,
                                                uint32_t gy_next) {
  using Element = typename Traits::Element;
  uint32_t b[Traits::kColumnTiles][2];
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
    const uint32_t s_x = lane.s_x[n] + x_offset;
    b[n][0] = load_operand<Element>(s_x), b[n][1] = load_operand<Element>(s_x + x_next);
  }
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
    uint32_t a[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t s_gy = lane.s_gy[m][half] + gy_offset;
      a[half] = load_operand<Element>(s_gy), a[2 + half] = load_operand<Element>(s_gy + gy_next);
    }
#pragma unroll
    for (int n = 0; n < Traits::kColumnTiles; ++n) ptx::mma_tf32(r_sums[m][n], a, b[n]);
  }
}

// Where a step lies, for pixels or taps that may not exist.
struct Border {
  int32_t row;         // of grad_output, that tap row 0 reads
  int32_t column;      // that tap column 0 reads for pixel 0 of the step's first
  int32_t end_column;  // what it would read for the first pixel that does not exist
  int32_t out_h;
  int32_t out_w;

  __device__ __forceinline__ bool has(const GemmRow& row_of, int32_t pixel_column) const {
    return column + pixel_column < end_column &&
           static_cast<uint32_t>(row + row_of.row) < static_cast<uint32_t>(out_h) &&
           static_cast<uint32_t>(column + pixel_column + row_of.column) < static_cast<uint32_t>(out_w);
  }
};

// Of grad_output zeros stand for what does not exist, which is wrong where the pixel is Inf or NaN: false, and nothing
// is added, where there is such a one.
template <typename Traits>
__device__ __forceinline__ bool multiply_border(WeightSums<Traits>& r_sums, const LaneOperands<Traits>& lane,
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
    for (int n = 0; n < Traits::kColumnTiles; ++n) ptx::mma_tf32(r_sums[m][n], a, b[n]);
  }
  return true;
}

// The same pixel by pixel, without tensor cores: exactly the products that exist.
template <typename Traits>
__device__ __forceinline__ void multiply_pixels(WeightSums<Traits>& r_sums, const GradWeightParams& params,
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
        r_x[n][i] = __uint_as_float(load_operand<Element>(s_x + (ci * params.pitches.x_channel + pixel) * kBytes));
      }
    }
#pragma unroll
    for (int m = 0; m < Traits::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const GemmRow row = s_rows[m * 16 + half * 8];
        if (!border.has(row, column)) continue;
        const float gy = __uint_as_float(load_operand<Element>(s_gy + row.place + column * kBytes));
#pragma unroll
        for (int n = 0; n < Traits::kColumnTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            r_sums[m][n][half * 2 + i] = __fmaf_rn(gy, r_x[n][i], r_sums[m][n][half * 2 + i]);
          }
        }
      }
    }
  }
}

template <typename Traits>
__device__ __forceinline__ void multiply_stage(WeightSums<Traits>& r_sums, const GradWeightParams& params,
                                               const thin::StagePlace& place, int32_t first_column,
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
      lane.s_gy[m][half] = place.s_gy + s_rows[m * 16 + half * 8].place + lane_column * kBytes;
    }
  }
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
    const int32_t ci = min(first_column + n * 8 + g, last_channel);
    lane.s_x[n] = place.s_x + (ci * params.pitches.x_channel + lane_pixel) * kBytes;
  }

  // Steps whose pixels all exist, with all taps of the CTA.
  const int32_t widest = mma_grad_weight_pixel(layout, 3) * stride + next_columns;  // last pixel of a step
  const int32_t limit = min(params.w.out - 1 - (layout.block_kw - 1) * params.w.dilation, end_column - 1) - widest;
  int32_t rest;
  const int32_t first_inside = params.by_step_columns(max(0, step_columns - 1 - place.column), &rest);
  const int32_t end_inside =
      limit < place.column ? 0 : min(layout.steps, params.by_step_columns(limit - place.column, &rest) + 1);
  const uint32_t x_next = layout.next_pixels * kBytes, gy_next = next_columns * kBytes;

  int32_t row = place.row;
#pragma unroll 1
  for (int32_t unit = 0; unit < place.units; ++unit, row += params.h.stride) {
    const bool row_inside = row >= 0 && row + (params.block_kh - 1) * params.h.dilation < params.h.out;
    const uint32_t x_unit = unit * params.pitches.x_row * kBytes, gy_unit = unit * params.pitches.gy_position * kBytes;
    int32_t step = 0;
#pragma unroll 1
    while (step < layout.steps) {
      uint32_t x_offset = x_unit + step * 2 * x_next, gy_offset = gy_unit + step * 2 * gy_next;
      if (row_inside && step >= first_inside && step < end_inside) {
#pragma unroll 2
        for (; step < end_inside; ++step) {
          multiply_inside<Traits>(r_sums, lane, x_offset, gy_offset, x_next, gy_next);
          x_offset += 2 * x_next, gy_offset += 2 * gy_next;
        }
        continue;
      }
      const int32_t column = place.column + step * step_columns;
      if (column >= end_column) break;
      const Border border{row, column, end_column, params.h.out, params.w.out};
      if (!multiply_border<Traits>(r_sums, lane, x_offset, gy_offset, x_next, gy_next, border, lane_column,
                                   next_columns, s_rows)) {
        multiply_pixels<Traits>(r_sums, params, border, place.s_gy + gy_offset, place.s_x + x_offset, first_column,
                                last_channel, s_rows);
      }
      ++step;
    }
  }
}

template <typename Traits>
__device__ __forceinline__ void store_sums(const WeightSums<Traits>& r_sums, const GradWeightParams& params,
                                           const thin::WeightPass& pass, int32_t first_column, const GemmRow* s_rows) {
  const int32_t t = static_cast<int32_t>(threadIdx.x) % 4;
  const int64_t channel_elems = int64_t{params.group_co} * params.h.kernel * params.w.kernel;
  float* g_slab = params.slabs + pass.chunk * params.groups * params.group_ci * channel_elems;
#pragma unroll
  for (int n = 0; n < Traits::kColumnTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t ci = first_column + n * 8 + t * 2 + i % 2;
      float* g_channel = g_slab + (int64_t{pass.group} * params.group_ci + pass.ci + ci) * channel_elems;
#pragma unroll
      for (int m = 0; m < Traits::kRowTiles; ++m) {
        const int32_t weight = s_rows[m * 16 + i / 2 * 8].weight;
        if (weight >= 0 && ci < params.block_ci && pass.ci + ci < params.group_ci) g_channel[weight] = r_sums[m][n][i];
      }
    }
  }
}

// Where the rows of the CTA's GEMM lie; those behind the last one are the last one, without a weight.
template <typename Element>
__device__ __forceinline__ void list_rows(const GradWeightParams& params, const thin::WeightPass& pass, int32_t listed,
                                          GemmRow* s_rows) {
  const MmaGradWeightLayout& layout = params.layout;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < listed; index += blockDim.x) {
    const MmaGradWeightRow row = mma_grad_weight_row(layout, min(index, layout.rows - 1));
    const int32_t co = pass.co + row.co, kh = pass.kh + row.kh, kw = pass.kw + row.kw;
    const bool exists = index < layout.rows && co < params.group_co && kh < params.h.kernel && kw < params.w.kernel;
    s_rows[index] =
        GemmRow{static_cast<int32_t>(mma_grad_weight_place(layout, row) * sizeof(Element)), row.kh * params.h.dilation,
                row.kw * params.w.dilation, exists ? (co * params.h.kernel + kh) * params.w.kernel + kw : -1};
  }
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(kMaxMmaGradWeightThreads, 1)
    grad_weight(const __grid_constant__ GradWeightParams params) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename Traits::Element;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_head = ptx::shared_address(s_bytes);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t row_unit = warp % params.layout.row_units,
                first_column = warp / params.layout.row_units * 8 * Traits::kColumnTiles;
  auto* s_table = reinterpret_cast<GemmRow*>(s_bytes + params.layout.table_begin);
  const GemmRow* s_rows = s_table + row_unit * 16 * Traits::kRowTiles + lane / 4;

  int32_t unit, end_unit, end_column, last_channel;
  {
    const thin::WeightPass pass(params, params.layout.block_kw);
    if (threadIdx.x == 0) pass.store(s_head);
    list_rows<Element>(params, pass, params.layout.row_units * 16 * Traits::kRowTiles, s_table);
    unit = pass.chunk * params.units_per_chunk;
    end_unit = min(unit + params.units_per_chunk, params.num_units);
    end_column = params.w.in * params.w.stride - params.w.padding + pass.kw * params.w.dilation;
    // Columns of the GEMM behind it take its elements: those of a stage that nobody loads must decide nothing.
    last_channel = min(params.block_ci, params.group_ci - pass.ci) - 1;
  }
  const uint32_t s_full = s_head, s_empty = s_head + 8 * kMaxThinWeightStages;
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < params.stages; ++i) {
      ptx::mbarrier_init(s_full + 8 * i, params.loaders);
      ptx::mbarrier_init(s_empty + 8 * i, params.layout.warps);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // all that is there for everybody

  int32_t slot = 0;
  uint32_t parity = 0;
  auto next_slot = [&] {
    if (++slot == params.stages) slot = 0, parity ^= 1;
  };
  if (warp >= params.layout.warps) {  // loads
#pragma unroll 1
    while (unit < end_unit) {
      const thin::WeightStage stage(params, unit, end_unit);
      unit += stage.units;
      ptx::mbarrier_wait(s_empty + 8 * slot, parity ^ 1);  // everybody has read what the slot held
      thin::load_weight_stage<Element>(params, stage, s_bytes, slot, true, warp - params.layout.warps);
      next_slot();
    }
    return;
  }
  WeightSums<Traits> r_sums = {};
#pragma unroll 1
  while (unit < end_unit) {
    ptx::mbarrier_wait(s_full + 8 * slot, parity);
    const thin::StagePlace place = *thin::stage_place(s_bytes, slot);
    unit += place.units;
    multiply_stage<Traits>(r_sums, params, place, first_column, last_channel, end_column, s_rows);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(s_empty + 8 * slot);  // this warp has read the stage
    next_slot();
  }
  store_sums<Traits>(r_sums, params, thin::WeightPass(s_head), first_column, s_rows);
#endif
}

}  // namespace convt::mma_sm90a
