// The gradient of the weight of layers bound by memory (kernels/ORDER.md gives the order of each sum).
//     slab[ci, co, kh, kw] = sum over the chunk's pixels (n, ih, iw) of
//                            x[n, ci, ih, iw] * gy[n, co, ih * stride - padding + kh * dilation, ...]
// Lanes of a warp take neighbouring pixels, and each keeps the warp's thread_ci x thread_co x thread_kw sums: so both
// operands are read from shared memory as they lie in global memory. thin/grad_weight_layout.h says what a CTA owns.
// Launched by thin/launch.cpp. Must not know: torch, how the plan was chosen, how slabs are added.
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

// A warp's sums: first channels and taps, of the pass. In shared memory too.
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

// An element as it lies in shared memory, and its value. It is not converted before it is needed, when its load has
// returned long ago.
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

// A thread's operands of one pixel, and where the next ones are: of tap 0 of each channel.
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

// One pixel of each lane. Each operand of the next one is loaded as soon as this one's is no longer needed.
// columns_exist: bit t: tap t's column, and the pixel, exist.
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
          const int co = ci % 2 == 0 ? i : Traits::kCo - 1 - i;  // neighbours share an operand
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

// What a thread multiplies of a stage. Coordinates are of grad_output.
struct StageRows {
  uint32_t s_x;        // address of its first pixel, of its first channel
  uint32_t s_gy;       // and of what its first tap reads there
  int32_t units;
  int32_t num_steps;   // of 32 columns, of a unit
  int32_t row;         // that its tap row reads for the first unit
  int32_t end_row;     // rows from here on do not exist, or their pixels do not
  int32_t column;      // that its first tap reads for the first step
  int32_t end_column;  // its first tap's for pixels that do not exist
  int32_t taps;        // that exist
};

// kTapStep: the dilation along W, or 0 for any.
template <typename Traits, int kTapStep>
__device__ __forceinline__ void multiply_stage(WeightAccumulators<Traits>& r_acc, const GradWeightParams& params,
                                               StageRows rows) {
  constexpr int32_t kBytes = sizeof(typename Traits::Element);
  constexpr uint32_t kAllTaps = (1u << Traits::kKw) - 1;
  const Axis& w = params.w;
  const int32_t tap_bytes = (kTapStep > 0 ? kTapStep : w.dilation) * kBytes;
  const int32_t columns_step = 32 * w.stride;
  // Steps whose pixels and taps all exist, for every lane: where the whole warp's columns of a step lie inside.
  const bool narrow = params.unit_rows > 1;
  const int32_t lane_columns = static_cast<int32_t>(threadIdx.x) % 32 * w.stride;
  const int32_t first = rows.column - lane_columns;  // of lane 0
  const int32_t room = min(w.out - 1 - (Traits::kKw - 1) * w.dilation, rows.end_column - 1) - 31 * w.stride - first;
  int32_t rest;
  const int32_t first_inside = params.by_columns_step(max(0, columns_step - 1 - first), &rest);
  const int32_t end_inside =
      narrow || rows.taps < Traits::kKw || room < 0 ? 0 : params.by_columns_step(room, &rest) + 1;
  // From the last step of a unit to the first one of the next.
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
      if (--units > 0) operands.move(x_unit, gy_unit);  // after the last unit its last pixel is loaded once more
    }
    if (inside) {
      multiply_pixels<Traits, true>(r_acc, operands, tap_bytes, columns_exist);
    } else {
      multiply_pixels<Traits, false>(r_acc, operands, tap_bytes, columns_exist);
    }
  }
}

// The copies of the stage that the mainloop needs next are complete; those of `ahead` later ones are not.
__device__ __forceinline__ void wait_for_copies(int32_t ahead) {
  if (ahead == 1) return ptx::cp_async_wait<1>();
  ptx::cp_async_wait<2>();
}

// Lanes are added in halves; lane 0 stores.
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

// What a thread multiplies of the stage in a slot.
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
  // What tap (kh, kw) would read for a pixel beyond the last.
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

  // The CTA's pass and chunk, the warp's sums, and the pixels that the CTA adds up.
  bool idle;  // no sums: this warp only loads
  int32_t unit, end_unit;  // from the stage on that is copied next
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
  __syncthreads();  // all that is there for everybody

  WeightAccumulators<Traits> r_acc = {};

  // While a stage is multiplied, the one that comes `ahead` stages later is copied, into the slot of a stage that
  // everybody has read: where there are three slots or more that stage is two back, so that nobody waits for the
  // others. Bulk copies of a stage are made by a few warps, and by others for the next one.
  const int32_t ahead = params.stages / 2;
  int32_t left = 0;  // stages that are copied, and not yet multiplied
  int32_t slot = -ahead;  // of the stage that is multiplied, negative before the first one
  int32_t turn = warp / params.loaders;  // stages until it is this warp's turn to copy
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
        // Everybody has read what the slot held.
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
      __syncthreads();  // the stage is complete for everybody, and everybody has read the one before
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
    if (!bulk && params.stages == 2) __syncthreads();  // everybody has read the stage, whose slot is filled next
    if (++slot == params.stages) slot = 0, parity ^= 1;
  }
  if (!idle) store_accumulators<Traits>(r_acc, params, WeightPass(s_head), WeightWarp(s_warp));
}

}  // namespace convt::thin
