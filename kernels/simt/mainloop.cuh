// The products of one pipeline stage: shared memory -> the thread's sums in registers.
//
// A thread owns kThreadCo output channels of kQuads quads, a quad being four neighbouring positions of
// one row. For one input channel and one tap row it reads a window of input columns once and slides it
// over up to four taps in registers: 4 * kThreadCo multiply-adds per quad and tap for two or three
// 16-byte reads of shared memory.
#pragma once

#include "plan/shared_layout.h"
#include "ptx/warp_reduce.cuh"
#include "simt/params.h"
#include "simt/stage.cuh"
#include "simt/traits.cuh"

namespace convt::simt {

// Where a quad lies in the tile.
struct QuadPlace {
  bool inside;     // the quad has at least one output of this tile
  int32_t image;   // of the tile
  int32_t row;     // of the tile
  int32_t column;  // of the tile, a multiple of 4
};

// A warp takes up to 4 channel groups of 8 or more quads: its reads of the weight are broadcasts to the
// quads, its reads of the input broadcasts to the channel groups, and neither meets a bank twice.
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

// What a warp may do with each tap row of a stage. Tap rows any_begin..any_end have an input row for
// some lane; within fast_begin..fast_end every tap of every lane lies inside the input.
template <int kQuads>
struct TapBounds {
  int32_t s_offset[kQuads];      // of the quad's window in a channel's plane
  int32_t row_begin[kQuads];     // valid tap rows of this lane's quad
  int32_t row_end[kQuads];
  int32_t column[kQuads];        // input column of the stage's tap 0 at the quad's first position
  int32_t any_begin, any_end;
  int32_t fast_begin, fast_end;
};

template <typename Traits>
__device__ TapBounds<Traits::kQuads> make_tap_bounds(const Params& params, const Tile& tile, const Stage& stage,
                                                     const Phase& phase_h, const Phase& phase_w) {
  const Window rows = row_window(stage.num_kh, phase_h.shift_step, params.shape.tile_h);
  const Window columns = column_window(stage.num_kw, phase_w.shift_step, params.shape.tile_w);
  const int32_t pitch = input_pitch(columns.extent);
  const int32_t h_in = params.problem.h.in;
  const int32_t w_in = params.problem.w.in;

  TapBounds<Traits::kQuads> bounds;
  int32_t any_begin = stage.num_kh, any_end = 0, fast_begin = 0, fast_end = stage.num_kh;
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) {
    const QuadPlace quad = quad_of_thread(params, tile, q);
    // Tap t of the stage reads row `row - t * shift_step`, which must lie in 0 .. h_in - 1.
    const int32_t row = tile.p_h_begin + quad.row + phase_h.first_shift - stage.kh_begin * phase_h.shift_step;
    const int32_t last = row - (h_in - 1);
    const int32_t begin = last > 0 ? (last + phase_h.shift_step - 1) / phase_h.shift_step : 0;
    const int32_t end = row < 0 ? 0 : min(stage.num_kh, row / phase_h.shift_step + 1);
    const int32_t column = tile.p_w_begin + quad.column + phase_w.first_shift - stage.kw_begin * phase_w.shift_step;
    const bool some = quad.inside && begin < end;
    const bool columns_inside = column - (stage.num_kw - 1) * phase_w.shift_step >= 0 && column + 3 < w_in;
    bounds.s_offset[q] = quad.inside ? (quad.image * rows.extent + quad.row) * pitch + quad.column : 0;
    bounds.row_begin[q] = some ? begin : 0;
    bounds.row_end[q] = some ? end : 0;
    bounds.column[q] = column;
    if (some) {
      any_begin = min(any_begin, begin);
      any_end = max(any_end, end);
    }
    // Lanes without a quad compute on whatever is there; nobody stores their sums.
    if (quad.inside) {
      fast_begin = max(fast_begin, some && columns_inside ? begin : stage.num_kh);
      fast_end = min(fast_end, some && columns_inside ? end : 0);
    }
  }
  bounds.any_begin = ptx::warp_min(any_begin);
  bounds.any_end = ptx::warp_max(any_end);
  bounds.fast_begin = ptx::warp_max(fast_begin);
  bounds.fast_end = ptx::warp_min(fast_end);
  return bounds;
}

// kCount accumulator elements from shared memory, 16 bytes at a time where they are aligned to that.
template <int kCount, typename Accumulator>
__device__ __forceinline__ void read_shared(Accumulator (&r_values)[kCount], const Accumulator* s_values) {
  constexpr int kBytes = kCount * sizeof(Accumulator) < 16 ? kCount * sizeof(Accumulator) : 16;
  struct alignas(kBytes) Vector {
    Accumulator values[kBytes / sizeof(Accumulator)];
  };
  constexpr int kPerVector = kBytes / sizeof(Accumulator);
  static_assert(kCount % kPerVector == 0, "whole vectors");
#pragma unroll
  for (int i = 0; i < kCount / kPerVector; ++i) {
    const Vector vector = reinterpret_cast<const Vector*>(s_values)[i];
#pragma unroll
    for (int j = 0; j < kPerVector; ++j) r_values[i * kPerVector + j] = vector.values[j];
  }
}

// kTaps neighbouring taps of one tap row, in ascending order for every output: tap t multiplies window
// element kTaps - 1 - t + position. With kBorder only elements that `valid` has a bit for are multiplied:
// 0 * Inf would be NaN, and adding +0 to -0 would lose a sign.
template <typename Traits, int kTaps, bool kBorder>
__device__ __forceinline__ void multiply_taps(
    typename Traits::Accumulator (&r_sums)[Traits::kQuads][4][Traits::kThreadCo],
    const typename Traits::Accumulator* const (&s_windows)[Traits::kQuads],
    const typename Traits::Accumulator* s_weight, const uint32_t (&valid)[Traits::kQuads]) {
  using Accumulator = typename Traits::Accumulator;
  constexpr int kWindow = kTaps == 1 ? 4 : 8;  // kTaps + 3 are used
  Accumulator r_window[Traits::kQuads][kWindow];
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) read_shared<kWindow>(r_window[q], s_windows[q]);
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    Accumulator r_weight[Traits::kThreadCo];
    read_shared<Traits::kThreadCo>(r_weight, s_weight + t * Traits::kThreadCo);
#pragma unroll
    for (int q = 0; q < Traits::kQuads; ++q) {
#pragma unroll
      for (int position = 0; position < 4; ++position) {
        constexpr int kLast = kTaps - 1;
        if (!kBorder || (valid[q] >> (kLast - t + position) & 1)) {
#pragma unroll
          for (int co = 0; co < Traits::kThreadCo; ++co) {
            r_sums[q][position][co] =
                fused_multiply_add(r_window[q][kLast - t + position], r_weight[co], r_sums[q][position][co]);
          }
        }
      }
    }
  }
}

// Taps first .. first + kTaps - 1 of tap row kh.
template <typename Traits, int kTaps>
__device__ __forceinline__ void multiply_row(
    typename Traits::Accumulator (&r_sums)[Traits::kQuads][4][Traits::kThreadCo],
    const TapBounds<Traits::kQuads>& bounds, const typename Traits::Accumulator* s_row,
    const typename Traits::Accumulator* s_weight, int32_t kh, int32_t last_shift, int32_t w_in) {
  const typename Traits::Accumulator* s_windows[Traits::kQuads];
  uint32_t valid[Traits::kQuads];
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) s_windows[q] = s_row + bounds.s_offset[q];
  if (kh >= bounds.fast_begin && kh < bounds.fast_end) {
    multiply_taps<Traits, kTaps, false>(r_sums, s_windows, s_weight, valid);
  } else {
#pragma unroll
    for (int q = 0; q < Traits::kQuads; ++q) {
      valid[q] = 0;
      if (kh >= bounds.row_begin[q] && kh < bounds.row_end[q]) {
        const int32_t column = bounds.column[q] - last_shift;  // of window element 0
#pragma unroll
        for (int i = 0; i < kTaps + 3; ++i) {
          if (static_cast<uint32_t>(column + i) < static_cast<uint32_t>(w_in)) valid[q] |= 1u << i;
        }
      }
    }
    multiply_taps<Traits, kTaps, true>(r_sums, s_windows, s_weight, valid);
  }
}

// All taps and channels of a stage whose first run of taps along W has kFirst taps. Runs of four
// follow: the short one comes first so that every window begins on a 16-byte boundary.
template <typename Traits, int kFirst>
__device__ __forceinline__ void multiply_stage(
    typename Traits::Accumulator (&r_sums)[Traits::kQuads][4][Traits::kThreadCo],
    const TapBounds<Traits::kQuads>& bounds, const Stage& stage, const Phase& phase_w,
    const typename Traits::Accumulator* s_input, const typename Traits::Accumulator* s_weight, int32_t plane,
    int32_t weight_plane, int32_t tap_row_elems, int32_t tap_column_elems, int32_t w_in) {
  using Accumulator = typename Traits::Accumulator;
  const int32_t num_kw = stage.num_kw;
  for (int32_t ci = 0; ci < stage.num_ci; ++ci) {
    for (int32_t kh = bounds.any_begin; kh < bounds.any_end; ++kh) {
      const Accumulator* s_row = s_input + ci * plane + (stage.num_kh - 1 - kh) * tap_row_elems;
      const Accumulator* s_taps = s_weight + ci * weight_plane + kh * num_kw * Traits::kThreadCo;
      multiply_row<Traits, kFirst>(r_sums, bounds, s_row + (num_kw - kFirst) * tap_column_elems, s_taps, kh,
                                   (kFirst - 1) * phase_w.shift_step, w_in);
      if constexpr (kFirst == 1) {
        if (tap_column_elems != 1) {  // taps that do not overlap: one at a time
          for (int32_t kw = 1; kw < num_kw; ++kw) {
            multiply_row<Traits, 1>(r_sums, bounds, s_row + (num_kw - 1 - kw) * tap_column_elems,
                                    s_taps + kw * Traits::kThreadCo, kh, kw * phase_w.shift_step, w_in);
          }
          continue;
        }
      }
      for (int32_t kw = kFirst; kw < num_kw; kw += 4) {
        multiply_row<Traits, 4>(r_sums, bounds, s_row + (num_kw - 4 - kw), s_taps + kw * Traits::kThreadCo, kh, kw + 3,
                                w_in);
      }
    }
  }
}

template <typename Traits>
__device__ void multiply(typename Traits::Accumulator (&r_sums)[Traits::kQuads][4][Traits::kThreadCo],
                         const TapBounds<Traits::kQuads>& bounds, const Params& params, const Stage& stage,
                         const Phase& phase_h, const Phase& phase_w, const typename Traits::Accumulator* s_stage) {
  const Window rows = row_window(stage.num_kh, phase_h.shift_step, params.shape.tile_h);
  const Window columns = column_window(stage.num_kw, phase_w.shift_step, params.shape.tile_w);
  const int32_t pitch = input_pitch(columns.extent);
  const int32_t plane = input_plane(params.shape.tile_n * rows.extent * pitch);
  const int32_t group_elems = (stage.num_kh * stage.num_kw | 1) * Traits::kThreadCo;
  const auto* s_weight = s_stage + params.shared.weight_elems + channel_group_of_thread(params) * group_elems;
  const int32_t weight_plane = group_elems << params.channel_groups_log2;
  const int32_t tap_row_elems = rows.step * pitch;
  const int32_t w_in = params.problem.w.in;
  if constexpr (Traits::kTapSums) {
    multiply_stage<Traits, 1>(r_sums, bounds, stage, phase_w, s_stage, s_weight, plane, weight_plane, tap_row_elems,
                              columns.step, w_in);
  } else {
    switch (columns.step == 1 ? (stage.num_kw - 1) % 4 + 1 : 1) {
#define CONVT_FIRST_RUN(kFirst)                                                                                 \
  case kFirst:                                                                                                  \
    multiply_stage<Traits, kFirst>(r_sums, bounds, stage, phase_w, s_stage, s_weight, plane, weight_plane,      \
                                   tap_row_elems, columns.step, w_in);                                          \
    break;
      CONVT_FIRST_RUN(1)
      CONVT_FIRST_RUN(2)
      CONVT_FIRST_RUN(3)
      CONVT_FIRST_RUN(4)
#undef CONVT_FIRST_RUN
    }
  }
}

}  // namespace convt::simt
