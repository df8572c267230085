// Global memory -> one stage of the gradient of the weight: a tile of pixels of the input and the window of
// grad_output that its taps read, channels innermost, converted to the accumulator's type. What lies outside a tensor
// is not loaded: the mainloop never multiplies it.
#pragma once

#include "plan/shared_layout.h"
#include "simt/fast_divide.cuh"
#include "simt/loader.cuh"
#include "simt/traits.cuh"

namespace convt::simt {

// One axis of a window in shared memory: element index -> coordinate in the tensor.
struct WindowAxis {
  Window window;
  int32_t begin;          // coordinate of element 0
  int32_t tile;           // positions
  int32_t shift_step;     // between taps
  int32_t position_step;  // between positions
  int32_t size;           // of the tensor

  // -1 outside the tensor.
  __device__ __forceinline__ int32_t coordinate(int32_t index, const FastDivide& by_tile) const {
    int32_t result = begin + index;
    if (window.copies) {
      int32_t within;
      const int32_t copy = by_tile(index, &within);
      result = begin + copy * shift_step + within * position_step;
    }
    return static_cast<uint32_t>(result) < static_cast<uint32_t>(size) ? result : -1;
  }
};

// Channels first, first + step, ... below `num`, of one position; neighbours lie g_step elements apart.
template <typename Traits>
__device__ __forceinline__ void load_position(uint32_t s_position, const typename Traits::Element* g_position,
                                              int32_t first, int32_t step, int32_t num, int64_t g_step) {
  using Element = typename Traits::Element;
  using Accumulator = typename Traits::Accumulator;
  const Element* g_source = g_position + first * g_step;
  uint32_t s_destination = s_position + first * sizeof(Accumulator);
  const int64_t g_next = step * g_step;
  if constexpr (std::is_same_v<Element, Accumulator>) {
#pragma unroll 4
    for (int32_t channel = first; channel < num; channel += step) {
      ptx::cp_async<sizeof(Element)>(s_destination, g_source);
      g_source += g_next;
      s_destination += step * sizeof(Accumulator);
    }
  } else {
    // Through registers, to be converted: loads in batches, so that only the first is waited for.
    constexpr int kBatch = 8;
    for (int32_t channel = first; channel < num; channel += kBatch * step) {
      Element r_values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (channel + i * step < num) r_values[i] = g_source[i * g_next];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (channel + i * step < num) {
          ptx::store_shared(s_destination + i * step * sizeof(Accumulator),
                            __float_as_uint(to_accumulator(r_values[i])));
        }
      }
      g_source += kBatch * g_next;
      s_destination += kBatch * step * sizeof(Accumulator);
    }
  }
}

// The window rows x columns of `num_channels` channels of one image, [row][column][pitch]. g_stride: of channels, rows,
// columns.
template <typename Traits>
__device__ __forceinline__ void load_window(const typename Traits::Element* g_image, const int64_t (&g_stride)[3],
                                            const WindowAxis& rows, const WindowAxis& columns, int32_t num_channels,
                                            int32_t pitch, uint32_t s_window) {
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const FastDivide by_tile_h(rows.tile), by_tile_w(columns.tile);
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
  // A warp takes 8 neighbouring columns x 4 channels at a time; where channels are neighbours in memory, one column
  // x 32.
  const bool channels_last = g_stride[0] == 1 && num_channels > 1;
  const int32_t width_log2 = channels_last ? 0 : 3;
  const int32_t lane_column = lane & ((1 << width_log2) - 1), lane_channel = lane >> width_log2;
  const int32_t channel_step = 32 >> width_log2;
  const int32_t items_per_row = ceil_div(columns.window.extent, 1 << width_log2);
  const FastDivide by_items(items_per_row);
  for (int32_t item = warp; item < rows.window.extent * items_per_row; item += num_warps) {
    int32_t column_item;
    const int32_t row = by_items(item, &column_item);
    const int32_t column = (column_item << width_log2) + lane_column;
    const int32_t h = rows.coordinate(row, by_tile_h);
    const int32_t w = column < columns.window.extent ? columns.coordinate(column, by_tile_w) : -1;
    if (h < 0 || w < 0) continue;
    load_position<Traits>(s_window + (row * columns.window.extent + column) * pitch * kBytes,
                          g_image + h * g_stride[1] + w * g_stride[2], lane_channel, channel_step, num_channels,
                          g_stride[0]);
  }
}

}  // namespace convt::simt
