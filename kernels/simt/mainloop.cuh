// Products of one pipeline stage, from shared memory to accumulators in registers.
//
// A thread owns kThreadCo output channels of kQuads quads. A quad is four neighbouring positions of one row. For one
// input channel and one tap row, the thread reads a window of input columns once and slides it over up to four taps in
// registers: 4 * kThreadCo multiply-adds per quad and tap for two or three 16-byte reads of shared memory.
#pragma once

#include "element/vector.cuh"
#include "ptx/shared.cuh"
#include "ptx/warp_reduce.cuh"
#include "simt/layout.h"
#include "simt/stage.cuh"

namespace convt::simt {

using element::read_shared;

// Position of a quad in the tile.
struct QuadPlace {
  bool inside;     // at least one output of the quad belongs to this tile
  int32_t image;   // relative to the tile
  int32_t row;     // relative to the tile
  int32_t column;  // relative to the tile, a multiple of 4
};

// A warp covers up to 4 channel groups of 8 or more quads. Its weight reads are broadcast to the quads, its input reads
// to the channel groups. Neither has bank conflicts.
__device__ __forceinline__ int32_t channel_group_of_thread(const Params& params) {
  const int32_t lane_log2 = min(params.channel_groups_log2, 2);
  const int32_t warp_log2 = params.channel_groups_log2 - lane_log2;
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  return (lane & ((1 << lane_log2) - 1)) + ((warp & ((1 << warp_log2) - 1)) << lane_log2);
}

// Quad number q of this thread.
__device__ __forceinline__ QuadPlace quad_of_thread(const Params& params, const Tile& tile, int32_t q) {
  const int32_t lane_log2 = min(params.channel_groups_log2, 2);
  const int32_t warp_log2 = params.channel_groups_log2 - lane_log2;
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t quads_per_pass = static_cast<int32_t>(blockDim.x) >> params.channel_groups_log2;
  const int32_t quads_per_row = params.shape.tile_w / 4;
  const int32_t quad = (lane >> lane_log2) + ((warp >> warp_log2) << (5 - lane_log2)) + q * quads_per_pass;
  const int32_t image_row = quad / quads_per_row;
  QuadPlace place;
  place.image = image_row / params.shape.tile_h;
  place.row = image_row - place.image * params.shape.tile_h;
  place.column = (quad - image_row * quads_per_row) * 4;
  place.inside = place.image < params.shape.tile_n && tile.n_begin + place.image < params.problem.batch &&
                 tile.p_h_begin + place.row < num_positions(params.problem.h, tile.phase_h) &&
                 tile.p_w_begin + place.column < num_positions(params.problem.w, tile.phase_w_begin);
  return place;
}

// Tap rows of a stage that a warp processes. In any_begin..any_end at least one lane has an input row. In
// fast_begin..fast_end every tap of every lane is inside the input.
template <int kQuads>
struct TapBounds {
  uint32_t s_offset[kQuads];  // bytes from a channel's plane to the quad's window
  int32_t row_begin[kQuads];  // valid tap rows of this lane's quad
  int32_t row_end[kQuads];
  int32_t column[kQuads];     // input column that the stage's tap 0 reads at the quad's first position
  int32_t any_begin, any_end;
  int32_t fast_begin, fast_end;
};

template <typename Traits>
__device__ TapBounds<Traits::kQuads> make_tap_bounds(const Params& params, const Tile& tile, const Stage& stage,
                                                     const Phase& phase_h, const Phase& phase_w) {
  const StageInput input = make_stage_input(params, stage, phase_h, phase_w);
  constexpr bool kAscending = Traits::kAscending;
  const int32_t h_in = params.problem.h.in;
  const int32_t w_in = params.problem.w.in;

  TapBounds<Traits::kQuads> bounds;
  int32_t any_begin = stage.num_kh, any_end = 0, fast_begin = 0, fast_end = stage.num_kh;
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) {
    const QuadPlace quad = quad_of_thread(params, tile, q);
    // Tap t of the stage reads row `row - t * shift_step`, which must be in 0 .. h_in - 1. If shift_step is negative,
    // the test is mirrored: it uses the distance from the last row.
    const int32_t row = (tile.p_h_begin + quad.row) * params.problem.h.position_step + phase_h.first_shift -
                        stage.kh_begin * phase_h.shift_step;
    const int32_t above = kAscending ? h_in - 1 - row : row, step = abs(phase_h.shift_step);
    const int32_t last = above - (h_in - 1);
    const int32_t begin = last > 0 ? (last + step - 1) / step : 0;
    const int32_t end = above < 0 ? 0 : min(stage.num_kh, above / step + 1);
    const int32_t column = (tile.p_w_begin + quad.column) * params.problem.w.position_step + phase_w.first_shift -
                           stage.kw_begin * phase_w.shift_step;
    const bool some = quad.inside && begin < end;
    const int32_t last_column = column - (stage.num_kw - 1) * phase_w.shift_step;
    const bool columns_inside =
        min(column, last_column) >= 0 && max(column, last_column) + 3 * params.problem.w.position_step < w_in;
    const int32_t s_element =
        quad.inside ? (quad.image * input.rows.extent + quad.row * input.rows.position_step) * input.pitch + quad.column
                    : 0;
    bounds.s_offset[q] = s_element * sizeof(typename Traits::Accumulator);
    bounds.row_begin[q] = some ? begin : 0;
    bounds.row_end[q] = some ? end : 0;
    bounds.column[q] = column;
    if (some) {
      any_begin = min(any_begin, begin);
      any_end = max(any_end, end);
    }
    // Lanes without a quad multiply arbitrary data of shared memory. Their results are never stored.
    if (quad.inside) {
      fast_begin = max(fast_begin, some && columns_inside ? begin : stage.num_kh);
      fast_end = min(fast_end, some && columns_inside ? end : 0);
    }
  }
  bounds.any_begin = ptx::opaque_lane_value(ptx::warp_min(any_begin));
  bounds.any_end = ptx::opaque_lane_value(ptx::warp_max(any_end));
  bounds.fast_begin = ptx::warp_max(fast_begin);
  bounds.fast_end = ptx::warp_min(fast_end);
  return bounds;
}

template <typename Traits>
using TapAccumulators = typename Traits::Accumulator[Traits::kQuads][4][Traits::kThreadCo];

// Multiplies kTaps consecutive taps of one tap row, in ascending order for every output. Tap t multiplies window
// element kTaps - 1 - t + position, or t + position if coordinates ascend. With kBorder, only elements whose bit in
// `valid` is set are multiplied: 0 * Inf would be NaN, and adding +0 to -0 would lose a sign.
template <typename Traits, int kTaps, bool kBorder>
__device__ __forceinline__ void multiply_taps(TapAccumulators<Traits>& r_acc,
                                              const uint32_t (&s_windows)[Traits::kQuads], uint32_t s_weight,
                                              const uint32_t (&valid)[Traits::kQuads]) {
  using Accumulator = typename Traits::Accumulator;
  constexpr int kWindow = kTaps == 1 ? 4 : kTaps == 2 ? 6 : 8;  // kTaps + 3 elements are used
  Accumulator r_window[Traits::kQuads][8];
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) {
    read_shared<4>(r_window[q], s_windows[q]);
    if constexpr (kWindow > 4) read_shared<kWindow - 4, 4 * sizeof(Accumulator)>(r_window[q] + 4, s_windows[q]);
  }
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    Accumulator r_weight[Traits::kThreadCo];
    read_shared<Traits::kThreadCo>(r_weight, s_weight + t * Traits::kThreadCo * sizeof(Accumulator));
    // Boustrophedon order: each multiply-add shares an operand with the previous one. Three operands from the register
    // file cost an extra cycle; with this order one operand comes from the reuse cache.
    constexpr int kPositions = 4 * Traits::kQuads;
#pragma unroll
    for (int c = 0; c < Traits::kThreadCo; ++c) {
      const int co = Traits::kQuads == 1 && t % 2 == 1 ? Traits::kThreadCo - 1 - c : c;
#pragma unroll
      for (int i = 0; i < kPositions; ++i) {
        const int place = c % 2 == 0 ? i : kPositions - 1 - i;
        const int q = place / 4, position = place % 4;
        const int element = (Traits::kAscending ? t : kTaps - 1 - t) + position;
        if (!kBorder || (valid[q] >> element & 1)) {
          r_acc[q][position][co] = fused_multiply_add(r_window[q][element], r_weight[co], r_acc[q][position][co]);
        }
      }
    }
  }
}

// Bit mask of the window elements inside the input. The quad's first element is input column `column`, and the element
// stride is `step` columns.
template <int kTaps>
__device__ __forceinline__ uint32_t valid_columns(int32_t column, int32_t step, int32_t w_in) {
  uint32_t valid = 0;
#pragma unroll
  for (int i = 0; i < kTaps + 3; ++i) {
    if (static_cast<uint32_t>(column + i * step) < static_cast<uint32_t>(w_in)) valid |= 1u << i;
  }
  return valid;
}

// Column parameters of the border checks.
struct ColumnChecks {
  int32_t shift_step;
  int32_t element_step;  // columns between consecutive elements of a quad's window
  int32_t w_in;
};

// Multiplies a run of kTaps taps from tap kw of tap row kh. Its tap with the lowest coordinate reads the window
// `s_window` bytes past the quads'.
template <typename Traits, int kTaps, bool kBorder>
__device__ __forceinline__ void multiply_run(TapAccumulators<Traits>& r_acc, const TapBounds<Traits::kQuads>& bounds,
                                             uint32_t s_window, uint32_t s_weight, int32_t kh, int32_t kw,
                                             const ColumnChecks& checks) {
  uint32_t s_windows[Traits::kQuads];
  uint32_t valid[Traits::kQuads];
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) {
    s_windows[q] = s_window + bounds.s_offset[q];
    if constexpr (kBorder) {
      const int32_t lowest = Traits::kAscending ? kw : kw + kTaps - 1;
      const bool row_inside = kh >= bounds.row_begin[q] && kh < bounds.row_end[q];
      valid[q] = row_inside ? valid_columns<kTaps>(bounds.column[q] - lowest * checks.shift_step, checks.element_step,
                                                   checks.w_in)
                            : 0;
    }
  }
  multiply_taps<Traits, kTaps, kBorder>(r_acc, s_windows, s_weight, valid);
}

// Byte strides within a stage.
struct StageStrides {
  uint32_t plane;         // input channel to next, input
  uint32_t weight_plane;  // input channel to next, weight
  uint32_t tap_row;       // window of a tap row to that of the row above
  uint32_t tap_column;    // window of a tap to that of the tap to its right
};

// Multiplies all taps and channels of a stage. The taps along W form runs of four and one short run of kShort taps. The
// short run comes last if coordinates ascend, otherwise first. Its window is thus the last, and every window is 16-byte
// aligned. With one tap row, channels take the place of tap rows in the inner loop, with constant steps.
template <typename Traits, int kShort, bool kBorder>
__device__ __forceinline__ void multiply_rows(TapAccumulators<Traits>& r_acc, const TapBounds<Traits::kQuads>& bounds,
                                              const Stage& stage, const StageStrides& strides,
                                              const ColumnChecks& checks, uint32_t s_input, uint32_t s_weight) {
  constexpr bool kAscending = Traits::kAscending;
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  constexpr uint32_t kTapBytes = Traits::kThreadCo * kBytes;
  const int32_t num_kw = stage.num_kw;
  const int32_t num_rows = bounds.any_end - bounds.any_begin;
  const int32_t first_row = kAscending ? bounds.any_begin : stage.num_kh - 1 - bounds.any_begin;
  s_input += first_row * strides.tap_row;
  s_weight += bounds.any_begin * num_kw * kTapBytes;
  const bool one_row = num_rows == 1;
  const uint32_t next_row = kAscending ? strides.tap_row : -strides.tap_row;
  const uint32_t input_step = one_row ? strides.plane : next_row;
  const uint32_t weight_step = one_row ? strides.weight_plane : num_kw * kTapBytes;
  const int32_t inner_count = one_row ? stage.num_ci : num_rows;
  const uint32_t outer_input_step = strides.plane - num_rows * next_row;
  const uint32_t outer_weight_step = strides.weight_plane - num_rows * num_kw * kTapBytes;
  const uint32_t s_short = (num_kw - kShort) * strides.tap_column;
  int32_t outer_count = one_row ? 1 : stage.num_ci;
  do {
    int32_t kh = bounds.any_begin;
    auto run = [&](auto taps, int32_t kw, uint32_t s_window) {
      multiply_run<Traits, decltype(taps)::value, kBorder>(r_acc, bounds, s_input + s_window, s_weight + kw * kTapBytes,
                                                           kh, kw, checks);
    };
    using Short = std::integral_constant<int, kShort>;
    using Four = std::integral_constant<int, 4>;
#pragma unroll 1
    for (int32_t count = inner_count; count > 0; --count) {
      if constexpr (!kAscending) run(Short{}, 0, s_short);
      if (num_kw > kShort) {
        if (kShort > 1 || strides.tap_column == kBytes) {
#pragma unroll 1
          for (int32_t kw = kAscending ? 0 : kShort; kw <= num_kw - 4 - (kAscending ? kShort : 0); kw += 4) {
            run(Four{}, kw, (kAscending ? kw : num_kw - kw - 4) * kBytes);
          }
        } else if constexpr (kShort == 1) {
#pragma unroll 1
          for (int32_t kw = kAscending ? 0 : 1; kw < num_kw - (kAscending ? 1 : 0); ++kw) {  // one tap at a time
            run(Short{}, kw, (kAscending ? kw : num_kw - 1 - kw) * strides.tap_column);
          }
        }
      }
      if constexpr (kAscending) run(Short{}, num_kw - kShort, s_short);
      s_input += input_step;
      s_weight += weight_step;
      if constexpr (kBorder) kh += one_row ? 0 : 1;
    }
    s_input += outer_input_step;
    s_weight += outer_weight_step;
  } while (--outer_count > 0);
}

template <typename Traits>
__device__ __forceinline__ void multiply(TapAccumulators<Traits>& r_acc, const TapBounds<Traits::kQuads>& bounds,
                                         const Params& params, const Stage& stage, const Phase& phase_h,
                                         const Phase& phase_w, uint32_t s_stage) {
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const auto [rows, columns, pitch, num_positions] = make_stage_input(params, stage, phase_h, phase_w);
  const uint32_t group_bytes = (stage.num_kh * stage.num_kw | 1) * Traits::kThreadCo * kBytes;
  StageStrides strides;
  strides.plane = input_plane(num_positions) * kBytes;
  strides.weight_plane = group_bytes << params.channel_groups_log2;
  strides.tap_row = rows.step * pitch * kBytes;
  strides.tap_column = columns.step * kBytes;
  const uint32_t s_weight =
      s_stage + params.shared.weight_elems * kBytes + channel_group_of_thread(params) * group_bytes;
  const ColumnChecks checks{phase_w.shift_step, columns.copies ? params.problem.w.position_step : columns.unit,
                            params.problem.w.in};
  if (bounds.any_begin >= bounds.any_end) return;
  // A warp whose windows are inside the input runs the loop without checks.
  const bool inside = bounds.fast_begin <= bounds.any_begin && bounds.fast_end >= bounds.any_end;
  const int32_t short_run = !columns.copies && !Traits::kTapSums ? (stage.num_kw - 1) % 4 + 1 : 1;
#define CONVT_SHORT_RUN(kShort)                                                                       \
  if (short_run == kShort) {                                                                          \
    if (inside) {                                                                                     \
      multiply_rows<Traits, kShort, false>(r_acc, bounds, stage, strides, checks, s_stage, s_weight); \
    } else {                                                                                          \
      multiply_rows<Traits, kShort, true>(r_acc, bounds, stage, strides, checks, s_stage, s_weight);  \
    }                                                                                                 \
  }
  CONVT_SHORT_RUN(1)
  if constexpr (!Traits::kTapSums) {
    CONVT_SHORT_RUN(2)
    CONVT_SHORT_RUN(3)
    CONVT_SHORT_RUN(4)
  }
#undef CONVT_SHORT_RUN
}

}  // namespace convt::simt
