// Staged outputs: a tile's results are collected in shared memory, all W phases of it, and leave as
// contiguous runs. Used by every engine whose threads do not own neighbouring outputs.
#pragma once

#include "plan/shared_layout.h"
#include "plan/tile.h"
#include "problem/problem.h"

namespace convt::epilogue {

// Element (channel, image_row, run position) of the staged tile; image_row = image * tile_h + row.
__device__ __forceinline__ int32_t staged_offset(const SharedLayout& shared, int32_t run_length, int32_t channel,
                                                 int32_t image_row, int32_t position) {
  return channel * shared.channel_stride + (image_row * run_length + position) * shared.column_stride;
}

// Writes the tile's part of the output. s_staged null: every output of the tile is its channel's bias.
// Waits for nobody: the caller's barrier has made the staged outputs visible.
template <typename Element, typename BiasOf>
__device__ void store_tile(const ConvTProblem& problem, const TileShape& shape, const Tile& tile,
                           const SharedLayout& shared, int32_t group_c_out, bool channels_last,
                           const Element* s_staged, Element* g_y, BiasOf bias_of) {
  const int32_t run_length = shape.tile_w * shape.phases_w;
  const int32_t num_co = min(shape.block_co, group_c_out - tile.co_begin);
  const int32_t num_images = static_cast<int32_t>(min(int64_t{shape.tile_n}, problem.batch - tile.n_begin));
  const int32_t num_rows = min(shape.tile_h, num_positions(problem.h, tile.phase_h) - tile.p_h_begin);
  const int32_t w_out = problem.w.out;
  const int32_t stride_w = problem.w.stride;
  const int32_t first_column = tile.p_w_begin * stride_w + tile.phase_w_begin;
  // All phases: the run is contiguous. Otherwise num_phases_w neighbours at each position.
  const bool contiguous = shape.phases_w == stride_w;
  // Output column of a run's position, or w_out where the tile owns none.
  auto column_of = [&](int32_t position) {
    if (contiguous) return first_column + position;
    const int32_t p = position / shape.phases_w;
    const int32_t phase = position - p * shape.phases_w;
    return phase < tile.num_phases_w ? first_column + p * stride_w + phase : w_out;
  };
  const int64_t first_row = int64_t{tile.p_h_begin} * problem.h.stride + tile.phase_h;
  const int64_t first_channel = int64_t{tile.group} * group_c_out + tile.co_begin;
  Element* g_tile = g_y + tile.n_begin * problem.y_stride[0] + first_channel * problem.y_stride[1] +
                    first_row * problem.y_stride[2];  // [num_images, num_co, num_rows, ...]
  const int64_t row_stride = problem.h.stride * problem.y_stride[2];

  const int32_t thread = threadIdx.x;
  if (!channels_last) {
    // A warp writes one run at a time: neighbouring warps take neighbouring channels, then rows. The
    // first lanes of a run idle so that each store instruction covers whole 32-byte sectors: a sector
    // written in two parts costs far more than one written once.
    const int32_t lane = thread % 32;
    const int32_t num_warps = blockDim.x / 32;
    const int32_t channel_step = min(shape.block_co, num_warps);
    const int32_t row_step = num_warps / channel_step;
    const int32_t warp_row = thread / 32 / channel_step;
    for (int32_t channel = thread / 32 % channel_step; channel < num_co; channel += channel_step) {
      const Element bias = s_staged == nullptr ? bias_of(channel) : Element{};
      for (int32_t image = 0; image < num_images; ++image) {
        Element* g_row =
            g_tile + image * problem.y_stride[0] + channel * problem.y_stride[1] + warp_row * row_stride;
        const Element* s_run =
            s_staged + staged_offset(shared, run_length, channel, image * shape.tile_h + warp_row, 0);
        for (int32_t row = warp_row; row < num_rows; row += row_step) {
          const int32_t misaligned =
              contiguous ? static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_row + first_column) / sizeof(Element)) &
                               31
                         : 0;
          for (int32_t position = lane - misaligned; position < run_length; position += 32) {
            const int32_t column = column_of(position);
            if (position >= 0 && column < w_out) g_row[column] = s_staged == nullptr ? bias : s_run[position];
          }
          g_row += row_step * row_stride;
          s_run += row_step * run_length;
        }
      }
    }
  } else {
    // Neighbouring lanes take neighbouring channels, which are neighbours in memory.
    const int32_t channel = thread & (shape.block_co - 1);
    if (channel >= num_co) return;
    const Element bias = s_staged == nullptr ? bias_of(channel) : Element{};
    const int32_t position_step = max(static_cast<int32_t>(blockDim.x) / shape.block_co, 1);
    for (int32_t image = 0; image < num_images; ++image) {
      for (int32_t row = 0; row < num_rows; ++row) {
        Element* g_row = g_tile + image * problem.y_stride[0] + channel + row * row_stride;
        const Element* s_run =
            s_staged + staged_offset(shared, run_length, channel, image * shape.tile_h + row, 0);
        for (int32_t position = thread / shape.block_co; position < run_length; position += position_step) {
          const int32_t column = column_of(position);
          if (column >= w_out) continue;
          g_row[column * problem.y_stride[3]] =
              s_staged == nullptr ? bias : s_run[position * shared.column_stride];
        }
      }
    }
  }
}

}  // namespace convt::epilogue
