// Global memory -> one pipeline stage in shared memory, converted to the accumulator's type.
// Input elements outside the image are not loaded: the mainloop never multiplies them.
#pragma once

#include "plan/shared_layout.h"
#include "ptx/cp_async.cuh"
#include "simt/params.h"
#include "simt/stage.cuh"
#include "simt/traits.cuh"

namespace convt::simt {

// One element, or zero. `s_destination` is a shared-memory address.
template <typename Traits>
__device__ __forceinline__ void load_element(uint32_t s_destination, const typename Traits::Element* g_source,
                                             bool inside = true) {
  using Element = typename Traits::Element;
  if constexpr (std::is_same_v<Element, typename Traits::Accumulator>) {
    ptx::cp_async<sizeof(Element)>(s_destination, g_source, inside);
  } else {
    ptx::store_shared(s_destination, inside ? __float_as_uint(to_accumulator(*g_source)) : 0u);
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

// The input of a stage, [num_ci][tile_n][rows][pitch]. Threads are spread over the positions of one
// channel's plane; each walks the channels of its positions, so that finding a position's place in
// memory is paid once for all of them.
template <typename Traits>
__device__ __forceinline__ void load_input(const Params& params, const Tile& tile, const Stage& stage,
                                           const Phase& phase_h, const Phase& phase_w, uint32_t s_input) {
  using Element = typename Traits::Element;
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const ConvTProblem& problem = params.problem;
  const Window rows = row_window(stage.num_kh, phase_h.shift_step, params.shape.tile_h);
  const Window columns = column_window(stage.num_kw, phase_w.shift_step, params.shape.tile_w);
  const int32_t pitch = input_pitch(columns.extent);
  const int32_t num_positions = params.shape.tile_n * rows.extent * pitch;
  const uint32_t plane_bytes = input_plane(num_positions) * kBytes;

  // The last tap of the stage reads the window's first row and column.
  const int32_t row_begin =
      tile.p_h_begin + phase_h.first_shift - (stage.kh_begin + stage.num_kh - 1) * phase_h.shift_step;
  const int32_t column_begin =
      tile.p_w_begin + phase_w.first_shift - (stage.kw_begin + stage.num_kw - 1) * phase_w.shift_step;
  const int64_t c_begin = int64_t{tile.group} * params.group_c_in + stage.ci_begin;
  const Element* g_input = static_cast<const Element*>(params.x) + tile.n_begin * problem.x_stride[0] +
                           c_begin * problem.x_stride[1];  // [tile_n, num_ci, h_in, w_in]

  // How the threads divide: neighbours take neighbouring columns, except that a channels_last input is
  // read by 8 neighbouring channels (one sector of float32) at a time. What positions leave over of
  // the threads goes to channels.
  const int32_t thread = threadIdx.x, num_threads = blockDim.x;
  int32_t position, position_step, ci_begin, ci_step;
  if (params.channels_last_input) {
    constexpr int32_t kLanes = 8;
    position = thread / kLanes, position_step = num_threads / kLanes;
    ci_begin = thread % kLanes, ci_step = kLanes;
  } else {
    position_step = min(num_threads, (num_positions + 31) / 32 * 32);
    ci_step = num_threads / position_step;
    ci_begin = thread / position_step;
    if (ci_begin >= ci_step) return;
    position = thread - ci_begin * position_step;
  }
  const int32_t num_ci = ci_begin < stage.num_ci ? (stage.num_ci - ci_begin + ci_step - 1) / ci_step : 0;
  const int64_t ci_stride = ci_step * problem.x_stride[1];
  const uint32_t ci_bytes = ci_step * plane_bytes;
  g_input += ci_begin * problem.x_stride[1];
  s_input += ci_begin * plane_bytes;

  const int32_t row_step = position_step / pitch, column_step = position_step - row_step * pitch;
  int32_t image_row = position / pitch, index = position - image_row * pitch;
  for (; position < num_positions; position += position_step) {
    const int32_t image = params.shape.tile_n == 1 ? 0 : image_row / rows.extent;
    const int32_t ih = window_coordinate(image_row - image * rows.extent, row_begin, rows, params.shape.tile_h,
                                         phase_h.shift_step);
    const int32_t iw = window_coordinate(index, column_begin, columns, params.shape.tile_w, phase_w.shift_step);
    const bool inside = static_cast<uint32_t>(ih) < static_cast<uint32_t>(problem.h.in) &&
                        static_cast<uint32_t>(iw) < static_cast<uint32_t>(problem.w.in) &&
                        tile.n_begin + image < problem.batch;
    if (inside) {
      const Element* g_source =
          g_input + image * problem.x_stride[0] + ih * problem.x_stride[2] + iw * problem.x_stride[3];
      uint32_t s_destination = s_input + position * kBytes;
#pragma unroll 4
      for (int32_t ci = 0; ci < num_ci; ++ci) {
        load_element<Traits>(s_destination, g_source);
        g_source += ci_stride;
        s_destination += ci_bytes;
      }
    }
    image_row += row_step;
    index += column_step;
    if (index >= pitch) {
      index -= pitch;
      ++image_row;
    }
  }
}

// The weight of a stage, [num_ci][channel group][taps | 1][thread_co]. Output channel i * groups + g of
// the tile is channel i of group g: neighbouring groups hold neighbouring channels, which keeps the
// epilogue's writes on different banks. Channels past c_out become zero; their sums are never stored.
template <typename Traits>
__device__ __forceinline__ void load_weight(const Params& params, const Tile& tile, const Stage& stage,
                                            const Phase& phase_h, const Phase& phase_w, uint32_t s_weight) {
  using Element = typename Traits::Element;
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const ConvTProblem& problem = params.problem;
  const uint32_t group_bytes = (stage.num_kh * stage.num_kw | 1) * Traits::kThreadCo * kBytes;
  const int32_t num_co = min(params.shape.block_co, params.group_c_out - tile.co_begin);
  const int32_t groups_log2 = params.channel_groups_log2;
  const int64_t ci_begin = int64_t{tile.group} * params.group_c_in + stage.ci_begin;
  const int32_t kh_begin = phase_h.first_tap + stage.kh_begin * phase_h.tap_step;
  const int32_t kw_begin = phase_w.first_tap + stage.kw_begin * phase_w.tap_step;
  const Element* g_weight = static_cast<const Element*>(params.w) + ci_begin * problem.w_stride[0] +
                            tile.co_begin * problem.w_stride[1] + kh_begin * problem.w_stride[2] +
                            kw_begin * problem.w_stride[3];
  const int64_t kw_stride = phase_w.tap_step * problem.w_stride[3];
  const int64_t kh_stride = phase_h.tap_step * problem.w_stride[2] - stage.num_kw * kw_stride;
  const int32_t num_kh = stage.num_kh, num_kw = stage.num_kw;

  for (int32_t pair = threadIdx.x; pair < stage.num_ci * params.shape.block_co; pair += blockDim.x) {
    const int32_t co = pair & (params.shape.block_co - 1);
    const int32_t ci = (pair >> groups_log2) / Traits::kThreadCo;
    const int32_t group = co & ((1 << groups_log2) - 1);
    const bool inside = co < num_co;
    const Element* g_tap = g_weight + ci * problem.w_stride[0] + (inside ? co : 0) * problem.w_stride[1];
    uint32_t s_tap = s_weight + ((ci << groups_log2) + group) * group_bytes + (co >> groups_log2) * kBytes;
    for (int32_t kh = 0; kh < num_kh; ++kh, g_tap += kh_stride) {
#pragma unroll 4
      for (int32_t kw = 0; kw < num_kw; ++kw) {
        load_element<Traits>(s_tap, g_tap, inside);
        g_tap += kw_stride;
        s_tap += Traits::kThreadCo * kBytes;
      }
    }
  }
}

}  // namespace convt::simt
