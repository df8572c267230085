// Global memory -> one pipeline stage in shared memory, converted to the accumulator's type.
// Elements outside the input are not loaded: the mainloop never multiplies them.
#pragma once

#include "plan/shared_layout.h"
#include "ptx/cp_async.cuh"
#include "simt/params.h"
#include "simt/stage.cuh"
#include "simt/traits.cuh"

namespace convt::simt {

template <typename Element, typename Accumulator>
__device__ __forceinline__ void load_element(Accumulator* s_destination, const Element* g_source) {
  if constexpr (std::is_same_v<Element, Accumulator>) {
    ptx::cp_async<sizeof(Element)>(s_destination, g_source);
  } else {
    *s_destination = to_accumulator(*g_source);
  }
}

// Input coordinate of element `index` of a window: neighbouring taps overlap, or each tap has its
// own copy of the tile (shared_layout.h).
__device__ __forceinline__ int32_t window_coordinate(int32_t index, int32_t begin, const Window& window, int32_t tile,
                                                     int32_t shift_step) {
  if (window.step == shift_step) return begin + index;
  const int32_t copy = index / tile;
  return begin + copy * shift_step + (index - copy * tile);
}

template <typename Traits>
__device__ void load_input(const Params& params, const Tile& tile, const Stage& stage, const Phase& phase_h,
                           const Phase& phase_w, typename Traits::Accumulator* s_input) {
  using Element = typename Traits::Element;
  const ConvTProblem& problem = params.problem;
  const Window rows = row_window(stage.num_kh, phase_h.shift_step, params.shape.tile_h);
  const Window columns = column_window(stage.num_kw, phase_w.shift_step, params.shape.tile_w);
  const int32_t pitch = input_pitch(columns.extent);
  const int32_t image_rows = params.shape.tile_n * rows.extent;
  const int32_t plane = input_plane(image_rows * pitch);

  // The last tap of the stage reads the window's first row and column.
  const int32_t row_begin =
      tile.p_h_begin + phase_h.first_shift - (stage.kh_begin + stage.num_kh - 1) * phase_h.shift_step;
  const int32_t column_begin =
      tile.p_w_begin + phase_w.first_shift - (stage.kw_begin + stage.num_kw - 1) * phase_w.shift_step;
  const int32_t h_in = problem.h.in;
  const int32_t w_in = problem.w.in;
  const int64_t c_begin = int64_t{tile.group} * params.group_c_in + stage.ci_begin;
  const Element* g_input = static_cast<const Element*>(params.x) + tile.n_begin * problem.x_stride[0] +
                           c_begin * problem.x_stride[1];  // [tile_n, num_ci, h_in, w_in]

  // Offset of an image row of the window in the input, or -1 where there is no such row.
  auto row_offset = [&](int32_t image_row) -> int64_t {
    const int32_t image = params.shape.tile_n == 1 ? 0 : image_row / rows.extent;
    const int32_t ih = window_coordinate(image_row - image * rows.extent, row_begin, rows, params.shape.tile_h,
                                         phase_h.shift_step);
    if (ih < 0 || ih >= h_in || tile.n_begin + image >= problem.batch) return -1;
    return image * problem.x_stride[0] + ih * problem.x_stride[2];
  };
  auto column = [&](int32_t index) {
    return window_coordinate(index, column_begin, columns, params.shape.tile_w, phase_w.shift_step);
  };

  const int32_t thread = threadIdx.x;
  if (!params.channels_last_input) {
    // A warp takes one row of one channel at a time; its lanes take neighbouring columns.
    const int32_t lane = thread % 32;
    const int32_t num_warps = blockDim.x / 32;
    int32_t image_row = thread / 32;
    for (int32_t ci = 0;; image_row += num_warps) {
      while (image_row >= image_rows) {
        image_row -= image_rows;
        ++ci;
      }
      if (ci >= stage.num_ci) break;
      const int64_t offset = row_offset(image_row);
      if (offset < 0) continue;
      const Element* g_row = g_input + ci * problem.x_stride[1] + offset;
      typename Traits::Accumulator* s_row = s_input + ci * plane + image_row * pitch;
      for (int32_t index = lane; index < columns.extent; index += 32) {
        const int32_t iw = column(index);
        if (iw >= 0 && iw < w_in) load_element(s_row + index, g_row + iw * problem.x_stride[3]);
      }
    }
  } else {
    // Eight neighbouring lanes take neighbouring channels (one sector of float32), then the next column.
    constexpr int32_t kLanes = 8;
    const int32_t num_positions = image_rows * columns.extent;
    for (int32_t position = thread / kLanes; position < num_positions; position += blockDim.x / kLanes) {
      const int32_t image_row = position / columns.extent;
      const int32_t index = position - image_row * columns.extent;
      const int64_t offset = row_offset(image_row);
      const int32_t iw = column(index);
      if (offset < 0 || iw < 0 || iw >= w_in) continue;
      const Element* g_position = g_input + offset + iw * problem.x_stride[3];
      for (int32_t ci = thread % kLanes; ci < stage.num_ci; ci += kLanes) {
        load_element(s_input + ci * plane + image_row * pitch + index, g_position + ci * problem.x_stride[1]);
      }
    }
  }
}

// Weight tile [num_ci][channel group][taps | 1][thread_co]. Output channel i * groups + g of the tile is
// channel i of group g: neighbouring groups hold neighbouring channels, which keeps the epilogue's
// writes on different banks. Channels past c_out become zero; their sums are never stored.
template <typename Traits>
__device__ void load_weight(const Params& params, const Tile& tile, const Stage& stage, const Phase& phase_h,
                            const Phase& phase_w, typename Traits::Accumulator* s_weight) {
  using Element = typename Traits::Element;
  using Accumulator = typename Traits::Accumulator;
  const ConvTProblem& problem = params.problem;
  const int32_t num_taps = stage.num_kh * stage.num_kw;
  const int32_t group_stride = (num_taps | 1) * Traits::kThreadCo;
  const int32_t num_co = min(params.shape.block_co, params.group_c_out - tile.co_begin);
  const int32_t groups_log2 = params.channel_groups_log2;
  const int64_t ci_begin = int64_t{tile.group} * params.group_c_in + stage.ci_begin;
  const int32_t kh_begin = phase_h.first_tap + stage.kh_begin * phase_h.tap_step;
  const int32_t kw_begin = phase_w.first_tap + stage.kw_begin * phase_w.tap_step;
  const Element* g_weight = static_cast<const Element*>(params.w) + ci_begin * problem.w_stride[0] +
                            tile.co_begin * problem.w_stride[1] + kh_begin * problem.w_stride[2] +
                            kw_begin * problem.w_stride[3];
  const int64_t kh_stride = phase_h.tap_step * problem.w_stride[2];
  const int64_t kw_stride = phase_w.tap_step * problem.w_stride[3];

  for (int32_t pair = threadIdx.x; pair < stage.num_ci * params.shape.block_co; pair += blockDim.x) {
    const int32_t co = pair & (params.shape.block_co - 1);
    const int32_t ci = (pair >> groups_log2) / Traits::kThreadCo;
    const int32_t group = co & ((1 << groups_log2) - 1);
    const bool inside = co < num_co;
    const Element* g_taps = g_weight + ci * problem.w_stride[0] + (inside ? co : 0) * problem.w_stride[1];
    Accumulator* s_tap = s_weight + ci * (group_stride << groups_log2) + group * group_stride + (co >> groups_log2);
    for (int32_t kh = 0; kh < stage.num_kh; ++kh) {
      for (int32_t kw = 0; kw < stage.num_kw; ++kw, s_tap += Traits::kThreadCo) {
        const Element* g_tap = g_taps + kh * kh_stride + kw * kw_stride;
        if constexpr (std::is_same_v<Element, Accumulator>) {
          ptx::cp_async<sizeof(Element)>(s_tap, g_tap, inside);
        } else {
          *s_tap = inside ? to_accumulator(*g_tap) : Accumulator{0};
        }
      }
    }
  }
}

}  // namespace convt::simt
