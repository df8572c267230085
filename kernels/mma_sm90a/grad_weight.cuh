// Gradient of the weight with mma.sync:
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, ih, iw) of
//                            x[n, ci, ih, iw] * gy[n, co, ih * stride - padding + kh * dilation, ...]
// Rows of a product are (co, kh, kw), columns are ci, and K is 8 pixels of a row. Both operands are unmodified copies
// of global memory in shared memory. mma_sm90a/grad_weight_layout.h defines the work of a CTA. Called by launch/. Must
// not know: torch, how the plan was chosen, how slabs are added.
#pragma once

#include "mma_sm90a/grad_weight_elements.cuh"
#include "mma_sm90a/grad_weight_pixels.cuh"
#include "tiling/strip_loader.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Stores to a slab, [group_co][h.kernel][w.kernel][groups * group_ci], in which rows of the GEMM are contiguous.
template <typename Traits>
__device__ __forceinline__ void store_accumulators(const WeightAccumulators<Traits>& r_acc,
                                                   const GradWeightParams& params, const tiling::WeightPass& pass,
                                                   int32_t first_column, const GemmRow* s_rows) {
  const int32_t t = static_cast<int32_t>(threadIdx.x) % 4;
  const int32_t num_channels = params.groups * params.group_ci, last = min(params.block_ci, params.group_ci - pass.ci);
  const int32_t first = pass.group * params.group_ci + pass.ci;
  const bool pairs = num_channels % 2 == 0 && first % 2 == 0;
  float* g_slab =
      params.slabs + int64_t{pass.chunk} * params.group_co * params.h.kernel * params.w.kernel * num_channels;
#pragma unroll
  for (int m = 0; m < Traits::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t weight = s_rows[m * 16 + half * 8].weight;
      if (weight < 0) continue;
      float* g_row = g_slab + int64_t{weight} * num_channels + first;
#pragma unroll
      for (int n = 0; n < Traits::kColumnTiles; ++n) {
        const int32_t ci = first_column + n * 8 + t * 2;
        const float* r_pair = &r_acc[m][n][half * 2];
        if (pairs && ci + 1 < last) {
          *reinterpret_cast<float2*>(g_row + ci) = make_float2(r_pair[0], r_pair[1]);
        } else {
          if (ci < last) g_row[ci] = r_pair[0];
          if (ci + 1 < last) g_row[ci + 1] = r_pair[1];
        }
      }
    }
  }
}

// Fills the table of the rows of the CTA's GEMM. Rows past the last one repeat it, without a weight.
template <typename Traits>
__device__ __forceinline__ void list_rows(const GradWeightParams& params, const tiling::WeightPass& pass,
                                          int32_t listed, GemmRow* s_rows) {
  const MmaGradWeightLayout& layout = params.layout;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < listed; index += blockDim.x) {
    const MmaGradWeightRow row = mma_grad_weight_row(layout, min(index, layout.rows - 1));
    const int32_t co = pass.co + row.co, kh = pass.kh + row.kh, kw = pass.kw + row.kw;
    const bool exists = index < layout.rows && co < params.group_co && kh < params.h.kernel && kw < params.w.kernel;
    s_rows[index] = GemmRow{static_cast<int32_t>(mma_grad_weight_place(layout, row) * sizeof(typename Traits::Element)),
                            row.kh * params.h.dilation, row.kw * params.w.dilation,
                            exists ? (co * params.h.kernel + kh) * params.w.kernel + kw : -1};
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
    const tiling::WeightPass pass(params, params.layout.block_kw);
    if (threadIdx.x == 0) pass.store(s_head);
    list_rows<Traits>(params, pass, params.layout.row_units * 16 * Traits::kRowTiles, s_table);
    unit = pass.chunk * params.units_per_chunk;
    end_unit = min(unit + params.units_per_chunk, params.num_units);
    end_column = params.w.in * params.w.stride - params.w.padding + pass.kw * params.w.dilation;
    // Columns of the GEMM past this channel read its elements, so that unloaded shared memory has no effect.
    last_channel = min(params.block_ci, params.group_ci - pass.ci) - 1;
  }
  const uint32_t s_full = s_head, s_empty = s_head + 8 * kMaxStripStages;
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < params.stages; ++i) {
      ptx::mbarrier_init(s_full + 8 * i, params.loaders * (Traits::kChannelsInner ? kPixelArrivals : 1));
      ptx::mbarrier_init(s_empty + 8 * i, params.layout.warps);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the pass, the table and the barriers are visible

  int32_t slot = 0;
  uint32_t parity = 0;
  auto next_slot = [&] {
    if (++slot == params.stages) slot = 0, parity ^= 1;
  };
  if (warp >= params.layout.warps) {  // producer
#pragma unroll 1
    while (unit < end_unit) {
      const tiling::WeightStage stage(params, unit, end_unit);
      unit += stage.units;
      ptx::mbarrier_wait(s_empty + 8 * slot, parity ^ 1);  // the consumers have released the slot
      if constexpr (Traits::kChannelsInner) {
        load_pixel_stage<Element>(params, stage, s_bytes, slot, warp - params.layout.warps);
      } else {
        tiling::load_weight_stage<Element>(params, stage, s_bytes, slot, true, warp - params.layout.warps);
      }
      next_slot();
    }
    return;
  }
  WeightAccumulators<Traits> r_acc = {};
#pragma unroll 1
  while (unit < end_unit) {
    ptx::mbarrier_wait(s_full + 8 * slot, parity);
    const tiling::StagePlace place = *tiling::stage_place(s_bytes, slot);
    unit += place.units;
    multiply_elements<Traits>(r_acc, params, place, first_column, last_channel, end_column, s_rows);
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(s_empty + 8 * slot);  // this warp has read the stage
    next_slot();
  }
  ptx::let_next_kernel_begin();  // the kernel that adds the slabs, which waits for them
  store_accumulators<Traits>(r_acc, params, tiling::WeightPass(s_head), first_column, s_rows);
#endif
}

}  // namespace convt::mma_sm90a
