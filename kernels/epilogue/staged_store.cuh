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

// The tile's part of the output, as both stores below see it.
template <typename Element>
struct OutputTile {
  Element* g_first;      // first channel, row and column: [num_images, num_co, num_rows, ...]
  int32_t num_co;
  int32_t num_images;
  int32_t num_rows;
  int32_t run_length;    // positions of a row, all W phases
  int32_t first_column;  // may be negative: the tile begins before the output
  int64_t row_stride;    // from row to row of the tile
};

template <typename Element>
__device__ OutputTile<Element> make_output_tile(const ConvTProblem& problem, const TileShape& shape, const Tile& tile,
                                                int32_t group_c_out, Element* g_y) {
  OutputTile<Element> output;
  output.num_co = min(shape.block_co, group_c_out - tile.co_begin);
  output.num_images = static_cast<int32_t>(min(int64_t{shape.tile_n}, problem.batch - tile.n_begin));
  output.num_rows = min(shape.tile_h, num_positions(problem.h, tile.phase_h) - tile.p_h_begin);
  output.run_length = shape.tile_w * shape.phases_w;
  output.first_column = tile.p_w_begin * problem.w.stride + tile.phase_w_begin;
  output.row_stride = problem.h.stride * problem.y_stride[2];
  const int64_t first_row = int64_t{tile.p_h_begin} * problem.h.stride + tile.phase_h;
  const int64_t first_channel = int64_t{tile.group} * group_c_out + tile.co_begin;
  output.g_first = g_y + tile.n_begin * problem.y_stride[0] + first_channel * problem.y_stride[1] +
                   first_row * problem.y_stride[2] + output.first_column * problem.y_stride[3];
  return output;
}

// Column of a run's position, counted from the tile's first, or -1 where the tile owns none: without
// all W phases a run is num_phases_w neighbours at each position.
__device__ __forceinline__ int32_t scattered_column(const ConvTProblem& problem, const TileShape& shape,
                                                    const Tile& tile, int32_t position) {
  const int32_t p = position / shape.phases_w;
  const int32_t phase = position - p * shape.phases_w;
  return phase < tile.num_phases_w ? p * problem.w.stride + phase : -1;
}

// Writes the tile. kStaged: from the staged outputs; otherwise every output is its channel's bias. Waits
// for nobody: the caller's barrier has made the staged outputs visible.
template <bool kStaged, typename Element, typename BiasOf>
__device__ void store_tile(const ConvTProblem& problem, const TileShape& shape, const Tile& tile,
                           const SharedLayout& shared, int32_t group_c_out, bool channels_last, const Element* s_staged,
                           Element* g_y, BiasOf bias_of) {
  const OutputTile<Element> output = make_output_tile(problem, shape, tile, group_c_out, g_y);
  const bool contiguous = shape.phases_w == problem.w.stride;
  const int32_t columns_begin = max(-output.first_column, 0);  // columns of the tile that exist
  const int32_t columns_end = problem.w.out - output.first_column;
  const int32_t thread = threadIdx.x;
  if (channels_last) {
    // Neighbouring lanes take neighbouring channels, which are neighbours in memory.
    const int32_t channel = thread & (shape.block_co - 1);
    if (channel >= output.num_co) return;
    const Element bias = kStaged ? Element{} : bias_of(channel);
    const int32_t position_step = max(static_cast<int32_t>(blockDim.x) / shape.block_co, 1);
    for (int32_t image = 0; image < output.num_images; ++image) {
      for (int32_t row = 0; row < output.num_rows; ++row) {
        Element* g_row = output.g_first + image * problem.y_stride[0] + channel + row * output.row_stride;
        const Element* s_run =
            s_staged + staged_offset(shared, output.run_length, channel, image * shape.tile_h + row, 0);
        for (int32_t position = thread / shape.block_co; position < output.run_length; position += position_step) {
          const int32_t column = contiguous ? position : scattered_column(problem, shape, tile, position);
          if (column < columns_begin || column >= columns_end) continue;
          g_row[column * problem.y_stride[3]] = kStaged ? s_run[position * shared.column_stride] : bias;
        }
      }
    }
    return;
  }
  // NCHW: a warp writes one run at a time; neighbouring warps take neighbouring channels, then rows.
  const int32_t lane = thread % 32;
  const int32_t num_warps = blockDim.x / 32;
  const int32_t channel_step = min(shape.block_co, num_warps);
  const int32_t row_step = num_warps / channel_step;
  const int32_t first_row = thread / 32 / channel_step;
  const int32_t run_end = contiguous ? min(output.run_length, columns_end) : output.run_length;
  for (int32_t channel = thread / 32 % channel_step; channel < output.num_co; channel += channel_step) {
    const Element bias = kStaged ? Element{} : bias_of(channel);
    for (int32_t image = 0; image < output.num_images; ++image) {
      Element* g_run =
          output.g_first + image * problem.y_stride[0] + channel * problem.y_stride[1] + first_row * output.row_stride;
      const Element* s_run =
          s_staged + staged_offset(shared, output.run_length, channel, image * shape.tile_h + first_row, 0);
      for (int32_t row = first_row; row < output.num_rows; row += row_step) {
        if (contiguous) {
          // The first lanes idle so that every store instruction covers whole 32-byte sectors: a sector
          // written in two parts costs far more than one written once.
          const int32_t misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_run) / sizeof(Element)) & 31;
          for (int32_t position = lane - misaligned; position < run_end; position += 32) {
            if (position >= columns_begin) g_run[position] = kStaged ? s_run[position] : bias;
          }
        } else {
#pragma unroll 1
          for (int32_t position = lane; position < run_end; position += 32) {
            const int32_t column = scattered_column(problem, shape, tile, position);
            if (column >= columns_begin && column < columns_end) g_run[column] = kStaged ? s_run[position] : bias;
          }
        }
        g_run += row_step * output.row_stride;
        s_run += row_step * output.run_length;
      }
    }
  }
}

}  // namespace convt::epilogue
