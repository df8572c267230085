// Gradient of the weight of memory-bound layers (kernels/ORDER.md defines the order of each sum).
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, ih, iw) of
//                            x[n, ci, ih, iw] * gy[n, co, ih * stride - padding + kh * dilation, ...]
// Lanes of a warp process neighbouring pixels. Each lane holds accumulators for all thread_ci x thread_co x thread_kw
// weights of the warp, so shared memory keeps both operands in the layout of global memory. thin/grad_weight_layout.h
// defines the work of a CTA. Launched by thin/launch.cpp.
#pragma once

#include "ptx/warp_reduce.cuh"
#include "thin/grad_weight_layout.h"
#include "tiling/strip_loader.cuh"

namespace convt::thin {

using tiling::load_weight_stage;
using tiling::stage_place;
using tiling::StagePlace;
using tiling::WeightPass;
using tiling::WeightStage;

// First channels and taps of a warp's weights, within the pass. A copy is in shared memory.
struct WeightWarp {
  int32_t ci;
  int32_t co;
  int32_t kh;
  int32_t kw;

  __device__ __forceinline__ WeightWarp(const GradWeightParams& params, int32_t warp, int32_t thread_ci,
                                        int32_t thread_co, int32_t thread_kw) {
    Digits digits{warp};
    ci = digits.next(params.warps_ci) * thread_ci;
    co = digits.next(params.warps_co) * thread_co;
    kw = digits.next(params.block_runs) * thread_kw;
    kh = digits.rest;
  }
  __device__ __forceinline__ explicit WeightWarp(uint32_t s_warp) {
    uint32_t words[4];
    ptx::load_shared(words, s_warp);
    ci = words[0], co = words[1], kh = words[2], kw = words[3];
  }
  __device__ __forceinline__ void store(uint32_t s_warp) const {
    const uint32_t words[4] = {static_cast<uint32_t>(ci), static_cast<uint32_t>(co), static_cast<uint32_t>(kh),
                               static_cast<uint32_t>(kw)};
    ptx::store_shared(s_warp, words);
  }
};

template <DataType kDataType, int kCiValue, int kCoValue, int kKwValue>
struct GradWeightTraits {
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kCi = kCiValue;
  static constexpr int kCo = kCoValue;
  static constexpr int kKw = kKwValue;
};

template <typename Traits>
using WeightAccumulators = float[Traits::kKw][Traits::kCo][Traits::kCi];

// Loads an element unconverted; value_of() converts it. Conversion is deferred until use, when the load has long
// completed.
template <typename Element>
__device__ __forceinline__ uint32_t load_raw(uint32_t s_element) {
  return sizeof(Element) == 4 ? ptx::load_shared(s_element) : ptx::load_shared_16(s_element);
}
template <typename Element>
__device__ __forceinline__ float value_of(uint32_t raw) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(raw)));
  } else {
    return __uint_as_float(sizeof(Element) == 4 ? raw : raw << 16);
  }
}

// A thread's operands of one pixel, and the addresses of the next pixel's operands (tap 0 of each channel).
template <typename Traits>
struct PixelOperands {
  using Element = typename Traits::Element;
  uint32_t x[Traits::kCi];
  uint32_t gy[Traits::kKw][Traits::kCo];
  uint32_t s_x[Traits::kCi];
  uint32_t s_gy[Traits::kCo];

  __device__ __forceinline__ void move(int32_t x_step, int32_t gy_step) {
#pragma unroll
    for (int ci = 0; ci < Traits::kCi; ++ci) s_x[ci] += x_step;
#pragma unroll
    for (int co = 0; co < Traits::kCo; ++co) s_gy[co] += gy_step;
  }
  __device__ __forceinline__ void load_x(int ci) { x[ci] = load_raw<Element>(s_x[ci]); }
  __device__ __forceinline__ void load_gy(int t, int32_t tap_bytes) {
#pragma unroll
    for (int co = 0; co < Traits::kCo; ++co) gy[t][co] = load_raw<Element>(s_gy[co] + t * tap_bytes);
  }
};

// Multiplies one pixel per lane. Each operand of the next pixel is loaded as soon as the current one is no longer
// needed. columns_exist: bit t is set if the pixel and tap t's column exist.
template <typename Traits, bool kInside>
__device__ __forceinline__ void multiply_pixels(WeightAccumulators<Traits>& r_acc, PixelOperands<Traits>& operands,
                                                int32_t tap_bytes, uint32_t columns_exist) {
  using Element = typename Traits::Element;
  float r_x[Traits::kCi];
#pragma unroll
  for (int ci = 0; ci < Traits::kCi; ++ci) r_x[ci] = value_of<Element>(operands.x[ci]);
#pragma unroll
  for (int t = 0; t < Traits::kKw; ++t) {
    if (kInside || (columns_exist >> t & 1) != 0) {
      float r_gy[Traits::kCo];
#pragma unroll
      for (int co = 0; co < Traits::kCo; ++co) r_gy[co] = value_of<Element>(operands.gy[t][co]);
#pragma unroll
      for (int ci = 0; ci < Traits::kCi; ++ci) {
#pragma unroll
        for (int i = 0; i < Traits::kCo; ++i) {
          const int co = ci % 2 == 0 ? i : Traits::kCo - 1 - i;  // consecutive products share an operand
          r_acc[t][co][ci] = element::fused_multiply_add(r_x[ci], r_gy[co], r_acc[t][co][ci]);
        }
        if (kInside && t == Traits::kKw - 1) operands.load_x(ci);
      }
    }
    operands.load_gy(t, tap_bytes);
  }
  if (!kInside) {
#pragma unroll
    for (int ci = 0; ci < Traits::kCi; ++ci) operands.load_x(ci);
  }
}

// A thread's part of a stage. Coordinates refer to grad_output.
struct StageRows {
  uint32_t s_x;        // address of the thread's first pixel, first channel
  uint32_t s_gy;       // address that its first tap reads for this pixel
  int32_t units;
  int32_t num_steps;   // steps of 32 columns per unit
  int32_t row;         // row that its tap row reads for the first unit
  int32_t end_row;     // rows from here on, or their pixels, do not exist
  int32_t column;      // column that its first tap reads in the first step
  int32_t end_column;  // column that its first tap would read for the first pixel past the end
  int32_t taps;        // number of existing taps
};

// kTapStep: dilation along W, or 0 for any.
template <typename Traits, int kTapStep>
__device__ __forceinline__ void multiply_stage(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                               StageRows rows) {
  constexpr int32_t kBytes = sizeof(typename Traits::Element);
  constexpr uint32_t kAllTaps = (1u << Traits::kKw) - 1;
  const Axis& w = params.w;
  const int32_t tap_bytes = (kTapStep > 0 ? kTapStep : w.dilation) * kBytes;
  const int32_t columns_step = 32 * w.stride;
  // Interior steps: all pixels and taps of all lanes exist.
  const bool narrow = params.unit_rows > 1;
  const int32_t lane_columns = static_cast<int32_t>(threadIdx.x) % 32 * w.stride;
  const int32_t first = rows.column - lane_columns;  // column of lane 0
  const int32_t room = min(w.out - 1 - (Traits::kKw - 1) * w.dilation, rows.end_column - 1) - 31 * w.stride - first;
  int32_t rest;
  const int32_t first_inside = params.by_columns_step(max(0, columns_step - 1 - first), &rest);
  const int32_t end_inside =
      narrow || rows.taps < Traits::kKw || room < 0 ? 0 : params.by_columns_step(room, &rest) + 1;
  // Byte offsets from the last step of a unit to the first step of the next.
  const int32_t x_unit = (params.unit_rows * params.pitches.x_row - 32 * (rows.num_steps - 1)) * kBytes;
  const int32_t gy_unit =
      (params.unit_rows * params.pitches.gy_position - (rows.num_steps - 1) * columns_step) * kBytes;

  PixelOperands<Traits> operands;
#pragma unroll
  for (int ci = 0; ci < Traits::kCi; ++ci) operands.s_x[ci] = rows.s_x + ci * params.pitches.x_channel * kBytes;
#pragma unroll
  for (int co = 0; co < Traits::kCo; ++co) operands.s_gy[co] = rows.s_gy + co * params.pitches.gy_channel * kBytes;
#pragma unroll
  for (int ci = 0; ci < Traits::kCi; ++ci) operands.load_x(ci);
#pragma unroll
  for (int t = 0; t < Traits::kKw; ++t) operands.load_gy(t, tap_bytes);

  int32_t step = 0, units = rows.units;
#pragma unroll 1
  while (units > 0) {
    const bool row_exists = rows.row >= 0 && rows.row < rows.end_row;
    bool inside = row_exists && step >= first_inside && step < end_inside;
    uint32_t columns_exist = kAllTaps;
    if (!inside) {
      columns_exist = 0;
      const int32_t column = rows.column + step * columns_step;
      const bool pixel_exists = row_exists && column < rows.end_column;
#pragma unroll
      for (int t = 0; t < Traits::kKw; ++t) {
        const bool exists = static_cast<uint32_t>(column + t * w.dilation) < static_cast<uint32_t>(w.out);
        columns_exist |= static_cast<uint32_t>(pixel_exists && exists && t < rows.taps) << t;
      }
      inside = __all_sync(0xffffffffu, columns_exist == kAllTaps) != 0;
    }
    if (++step < rows.num_steps) {
      operands.move(32 * kBytes, columns_step * kBytes);
    } else {
      step = 0;
      rows.row += params.unit_rows * params.h.stride;
      if (--units > 0) operands.move(x_unit, gy_unit);  // after the last unit, the last pixel is reloaded
    }
    if (inside) {
      multiply_pixels<Traits, true>(r_acc, operands, tap_bytes, columns_exist);
    } else {
      multiply_pixels<Traits, false>(r_acc, operands, tap_bytes, columns_exist);
    }
  }
}

// Waits for the stage that the mainloop needs next, but not for the `ahead` later stages.
__device__ __forceinline__ void wait_for_copies(int32_t ahead) {
  if (ahead == 1) return ptx::cp_async_wait<1>();
  ptx::cp_async_wait<2>();
}

// Reduces lanes in halves; lane 0 stores.
template <typename Traits>
__device__ __forceinline__ void store_accumulators(const WeightAccumulators<Traits>& r_acc,
                                                   const GradWeightParams& params, const WeightPass& pass,
                                                   const WeightWarp& warp) {
  const int32_t k_h = params.h.kernel, k_w = params.w.kernel;
  const int32_t ci_0 = pass.ci + warp.ci, co_0 = pass.co + warp.co, kh = pass.kh + warp.kh, kw_0 = pass.kw + warp.kw;
  const int64_t slab_elems = int64_t{params.groups} * params.group_ci * params.group_co * k_h * k_w;
  float* g_slab = params.slabs + pass.chunk * slab_elems;
#pragma unroll
  for (int ci = 0; ci < Traits::kCi; ++ci) {
#pragma unroll
    for (int co = 0; co < Traits::kCo; ++co) {
      const int64_t channel = int64_t{pass.group} * params.group_ci + ci_0 + ci;
      float* g_taps = g_slab + ((channel * params.group_co + co_0 + co) * k_h + kh) * k_w + kw_0;
#pragma unroll
      for (int t = 0; t < Traits::kKw; ++t) {
        const float sum = ptx::warp_sum(r_acc[t][co][ci]);
        const bool exists = ci_0 + ci < params.group_ci && co_0 + co < params.group_co && kw_0 + t < k_w;
        if (threadIdx.x % 32 == 0 && exists) g_taps[t] = sum;
      }
    }
  }
}

// The thread's part of the stage in a slot.
template <typename Element>
__device__ __forceinline__ StageRows stage_rows(const GradWeightParams& params, const WeightPass& pass,
                                                const WeightWarp& warp, const StagePlace& place) {
  constexpr int32_t kBytes = sizeof(Element);
  const Axis &h = params.h, &w = params.w;
  const StripPitches& pitches = params.pitches;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t lane_row = params.unit_rows > 1 ? lane >> params.strip_log2 : 0;
  const int32_t lane_column = lane - (lane_row << params.strip_log2);
  StageRows rows;
  rows.s_x = place.s_x + (warp.ci * pitches.x_channel + lane_row * pitches.x_row + lane_column) * kBytes;
  rows.s_gy = place.s_gy + (warp.co * pitches.gy_channel + lane_row * pitches.gy_position + warp.kh * pitches.gy_tap +
                            lane_column * w.stride + warp.kw * w.dilation) *
                               kBytes;
  rows.units = place.units;
  rows.num_steps = place.num_steps;
  rows.row = place.row + lane_row * h.stride + warp.kh * h.dilation;
  rows.column = place.column + lane_column * w.stride + warp.kw * w.dilation;
  // Coordinates that tap (kh, kw) would read for the first pixel past the end.
  rows.end_row = min(h.out, h.in * h.stride - h.padding + (pass.kh + warp.kh) * h.dilation);
  rows.end_column = w.in * w.stride - w.padding + (pass.kw + warp.kw) * w.dilation;
  rows.taps = w.kernel - pass.kw - warp.kw;
  return rows;
}

template <typename Traits>
__global__ void __launch_bounds__(kMaxThinWeightThreads, 1)
    grad_weight_kernel(const __grid_constant__ GradWeightParams params) {
  using Element = typename Traits::Element;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_head = ptx::shared_address(s_bytes);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t num_warps = static_cast<int32_t>(blockDim.x) / 32;
  const uint32_t s_warp = s_head + kThinWeightWarpsBegin + warp * kThinWeightWarpBytes;

  // The CTA's pass and chunk, the warp's weights, and the CTA's range of pixels.
  bool idle;  // no weights: this warp only loads
  int32_t unit, end_unit;  // range of units not yet copied
  {
    const WeightPass pass(params, Traits::kKw);
    const WeightWarp sums(params, warp, Traits::kCi, Traits::kCo, Traits::kKw);
    if (threadIdx.x == 0) pass.store(s_head);
    if (lane == 0) sums.store(s_warp);
    idle = pass.ci + sums.ci >= params.group_ci || pass.co + sums.co >= params.group_co ||
           pass.kh + sums.kh >= params.h.kernel || pass.kw + sums.kw >= params.w.kernel;
    unit = pass.chunk * params.units_per_chunk;
    end_unit = min(unit + params.units_per_chunk, params.num_units);
  }
#ifdef CONVT_HAS_BULK_ROWS
  const bool bulk = params.bulk;
  const uint32_t s_full = s_head, s_empty = s_head + 8 * kMaxStripStages;
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < params.stages; ++i) {
      ptx::mbarrier_init(s_full + 8 * i, params.loaders);
      ptx::mbarrier_init(s_empty + 8 * i, num_warps);
    }
    ptx::fence_mbarrier_init();
  }
#else
  constexpr bool bulk = false;
#endif
  __syncthreads();  // the barriers and tables above are visible to all threads

  WeightAccumulators<Traits> r_acc = {};

  // While a stage is multiplied, the stage `ahead` positions later is copied into a slot that all threads have read.
  // With three or more slots, that slot was last used two stages ago, so no warp waits for the others. Bulk copies of a
  // stage are issued by a few warps, those of the next stage by others.
  const int32_t ahead = params.stages / 2;
  int32_t left = 0;  // stages copied or in flight, not yet multiplied
  int32_t slot = -ahead;  // slot of the current stage, negative before the first
  int32_t turn = warp / params.loaders;  // stages until this warp copies
  uint32_t parity = 0;
#pragma unroll 1
  while (true) {
    if (unit < end_unit) {
      const bool wraps = slot + ahead >= params.stages;
      const int32_t slot_ahead = slot + ahead - (wraps ? params.stages : 0);
      const WeightStage stage(params, unit, end_unit);
      unit += stage.units;
      ++left;
      if (!bulk || turn == 0) {
#ifdef CONVT_HAS_BULK_ROWS
        // All warps have read the slot's previous stage.
        if (bulk) ptx::mbarrier_wait(s_empty + 8 * slot_ahead, parity ^ (wraps ? 0 : 1));
#endif
        load_weight_stage<Element>(params, stage, s_bytes, slot_ahead, bulk, bulk ? warp % params.loaders : warp);
      }
      turn = turn == 0 ? num_warps / params.loaders - 1 : turn - 1;
    }
    if (!bulk) ptx::cp_async_commit();
    if (slot < 0) {
      ++slot;
      continue;
    }
    if (left-- == 0) break;

#ifdef CONVT_HAS_BULK_ROWS
    if (bulk) ptx::mbarrier_wait(s_full + 8 * slot, parity);
#endif
    if (!bulk) {
      wait_for_copies(ahead);
      __syncthreads();  // the stage has arrived for all threads, and all threads have read the previous one
    }
    if (!idle) {
      const StageRows rows =
          stage_rows<Element>(params, WeightPass(s_head), WeightWarp(s_warp), *stage_place(s_bytes, slot));
      if (params.w.dilation == 1) {
        multiply_stage<Traits, 1>(r_acc, params, rows);
      } else if (params.w.dilation == 2) {
        multiply_stage<Traits, 2>(r_acc, params, rows);
      } else {
        multiply_stage<Traits, 0>(r_acc, params, rows);
      }
    }
#ifdef CONVT_HAS_BULK_ROWS
    if (bulk) {
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(s_empty + 8 * slot);  // this warp has read the stage
    }
#endif
    if (!bulk && params.stages == 2) __syncthreads();  // all threads have read the stage, whose slot is filled next
    if (++slot == params.stages) slot = 0, parity ^= 1;
  }
  if (!idle) store_accumulators<Traits>(r_acc, params, WeightPass(s_head), WeightWarp(s_warp));
}

}  // namespace convt::thin
