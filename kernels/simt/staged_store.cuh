// Staged outputs. Threads do not own neighbouring outputs, so a tile collects the results of all its W phases in shared
// memory and stores them as contiguous runs.
#pragma once

#include "problem/problem.h"
#include "simt/layout.h"

namespace convt::simt {

// Offset of element (channel, image_row, run position) of the staged tile; image_row = image * tile_h + row.
__device__ __forceinline__ int32_t staged_offset(const SharedLayout& shared, int32_t run_length, int32_t channel,
                                                 int32_t image_row, int32_t position) {
  return channel * shared.channel_stride + (image_row * run_length + position) * shared.column_stride;
}

// Output column of a run's position, counted from the tile's first column, or -1 if the tile does not own it. A tile
// with only some of the phases owns num_phases consecutive columns at each position.
__device__ __forceinline__ int32_t scattered_column(const OutputColumns& columns, int32_t num_phases,
                                                    int32_t position) {
  const int32_t p = position / columns.phases;
  const int32_t phase = position - p * columns.phases;
  return phase < num_phases ? p * columns.stride + phase : -1;
}

// A warp stores one run of contiguous columns. The first lanes idle so that every store instruction covers whole
// 32-byte sectors: a sector that two instructions write costs far more than a sector written at once.
template <bool kStaged, typename Element>
__device__ __forceinline__ void store_run(Element* g_run, const Element* s_run, Element bias, int32_t begin,
                                          int32_t end) {
  const int32_t misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_run) / sizeof(Element)) & 31;
  for (int32_t position = static_cast<int32_t>(threadIdx.x % 32) - misaligned; position < end; position += 32) {
    if (position >= begin) g_run[position] = kStaged ? s_run[position] : bias;
  }
}

// Stores the outputs of the tile: from the staged outputs if kStaged, otherwise each channel's bias. Contains no
// barrier: the caller's barrier has made the staged outputs visible.
template <bool kStaged, typename Element, typename BiasOf>
__device__ void store_tile(const ConvTProblem& problem, const TileShape& shape, const Tile& tile,
                           const SharedLayout& shared, const OutputColumns& columns, int32_t fused_log2,
                           int32_t group_c_out, bool channels_last, const Element* s_staged, Element* g_y,
                           BiasOf bias_of) {
  // Channels of the output. Those of the tile and of bias_of also count the fused phases.
  const int32_t block_co = shape.block_co >> fused_log2;
  const int32_t num_co = min(shape.block_co, group_c_out - tile.co_begin) >> fused_log2;
  const int32_t num_images = static_cast<int32_t>(min(int64_t{shape.tile_n}, problem.batch - tile.n_begin));
  const int32_t num_rows = min(shape.tile_h, num_positions(problem.h, tile.phase_h) - tile.p_h_begin);
  const int32_t run_length = shape.tile_w * columns.phases;
  // The first column is negative if the tile starts before the output.
  const int32_t first_column = tile.p_w_begin * columns.stride + tile.phase_w_begin - columns.offset;
  const int32_t columns_begin = max(-first_column, 0);  // first column of the tile inside the output
  const int32_t columns_end = columns.w_out - first_column;
  const int32_t num_phases = fused_log2 > 0 ? columns.phases : tile.num_phases_w;
  const bool contiguous = columns.phases == columns.stride;
  const int64_t first_row = int64_t{tile.p_h_begin} * problem.h.stride + tile.phase_h;
  const int64_t row_stride = problem.h.stride * problem.y_stride[2];
  const int64_t first_channel = (int64_t{tile.group} * group_c_out + tile.co_begin) >> fused_log2;
  Element* g_tile = g_y + tile.n_begin * problem.y_stride[0] + first_channel * problem.y_stride[1] +
                    first_row * problem.y_stride[2] + first_column * problem.y_stride[3];

  const int32_t thread = threadIdx.x;
  if (channels_last) {
    // Neighbouring lanes store neighbouring channels, which are contiguous in memory.
    const int32_t channel = thread & (block_co - 1);
    if (channel >= num_co) return;
    const Element bias = kStaged ? Element{} : bias_of(channel << fused_log2);
    const int32_t position_step = max(static_cast<int32_t>(blockDim.x) / block_co, 1);
    for (int32_t image = 0; image < num_images; ++image) {
      for (int32_t row = 0; row < num_rows; ++row) {
        Element* g_row = g_tile + image * problem.y_stride[0] + channel + row * row_stride;
        const Element* s_run = s_staged + staged_offset(shared, run_length, channel, image * shape.tile_h + row, 0);
        for (int32_t position = thread / block_co; position < run_length; position += position_step) {
          const int32_t column = contiguous ? position : scattered_column(columns, num_phases, position);
          if (column < columns_begin || column >= columns_end) continue;
          g_row[column * problem.y_stride[3]] = kStaged ? s_run[position * shared.column_stride] : bias;
        }
      }
    }
    return;
  }
  // NCHW: a warp stores one run at a time. Neighbouring warps store neighbouring channels, then rows.
  const int32_t num_warps = blockDim.x / 32;
  const int32_t channel_step = min(block_co, num_warps);
  const int32_t row_step = num_warps / channel_step;
  const int32_t warp_row = thread / 32 / channel_step;
  const int32_t run_end = min(run_length, columns_end);
  for (int32_t channel = thread / 32 % channel_step; channel < num_co; channel += channel_step) {
    const Element bias = kStaged ? Element{} : bias_of(channel << fused_log2);
    for (int32_t image = 0; image < num_images; ++image) {
      Element* g_run = g_tile + image * problem.y_stride[0] + channel * problem.y_stride[1] + warp_row * row_stride;
      const Element* s_run = s_staged + staged_offset(shared, run_length, channel, image * shape.tile_h + warp_row, 0);
      for (int32_t row = warp_row; row < num_rows; row += row_step) {
        if (contiguous) {
          store_run<kStaged>(g_run, s_run, bias, columns_begin, run_end);
        } else {
#pragma unroll 1
          for (int32_t position = thread % 32; position < run_length; position += 32) {
            const int32_t column = scattered_column(columns, num_phases, position);
            if (column >= columns_begin && column < columns_end) g_run[column] = kStaged ? s_run[position] : bias;
          }
        }
        g_run += row_step * row_stride;
        s_run += row_step * run_length;
      }
    }
  }
}

}  // namespace convt::simt
