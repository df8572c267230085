// Source and destination of packed weights: the order of channels, taps, and of the 16-byte vectors of a column.
#pragma once

#include "element/operand.cuh"
#include "pack/params.h"
#include "ptx/operand_layout.cuh"

namespace convt::pack {

// The accumulators of thread q of four are columns 8 * j + 2 * q and the next. This order of channels makes the pairs
// of `interleaved` adjacent blocks j contiguous channels.
__device__ __forceinline__ int32_t channel_of_column(int32_t column, int32_t interleaved) {
  const int32_t block = column / 8 % interleaved, quad = column % 8 / 2;
  return column / (8 * interleaved) * (8 * interleaved) + (quad * interleaved + block) * 2 + column % 2;
}

// The inverse of channel_of_column().
__device__ __forceinline__ int32_t column_of_channel(int32_t channel, int32_t interleaved) {
  const int32_t of_quad = channel % (2 * interleaved), quad = channel / (2 * interleaved) % 4;
  return channel / (8 * interleaved) * (8 * interleaved) + of_quad / 2 * 8 + quad * 2 + channel % 2;
}

// Index of a vector in its tap.
__device__ __forceinline__ int32_t place_of_vector(const Params& params, int32_t plane, int32_t column) {
  if (!params.rows) return plane * params.block_n + column;
  const int32_t planes = params.k_steps * 2;
  return column * planes + ptx::tensor_swizzle(16 * planes, column, plane);
}

// Where a tap is in memory, and where it is packed in a channel tile.
struct Tap {
  int64_t from;  // elements
  int64_t to;    // bytes from the start of the channel tile, for the first stage
  int32_t stage_bytes;  // bytes per stage of its H phase
};

__device__ __forceinline__ Tap find_tap(const Params& params, int32_t tap) {
  int32_t phase_h = 0;
  while (phase_h + 1 < params.program.phases_h && tap >= params.program.taps_before[phase_h + 1]) ++phase_h;
  const int32_t phase_tap = tap - params.program.taps_before[phase_h];
  // The run that contains the tap.
  const bool by_phase = params.program.phases_h * params.program.phases_w > 1;
  int32_t index = by_phase ? phase_h * params.program.phases_w : 0;
  while (phase_tap >=
         params.program.runs[index].first_tap + params.program.runs[index].num_h * params.program.runs[index].num_w) {
    ++index;
  }
  const TapRun& run = params.program.runs[index];
  const int32_t tap_of_run = phase_tap - run.first_tap;
  const int32_t kh = run.kh + tap_of_run / run.num_w * run.kh_step;
  const int32_t kw = run.kw + tap_of_run % run.num_w * run.kw_step;
  return {kh * params.kh_stride + kw * params.kw_stride,
          params.packed_phase_begin[phase_h] + int64_t{phase_tap} * params.tap_bytes,
          params.program.num_taps[phase_h] * params.tap_bytes};
}

#ifdef CONVT_HAS_WGMMA

// Stores 16 bytes of a tap's planes. In tf32x3 the low terms follow after all `vectors` of the tap.
template <typename Traits>
__device__ __forceinline__ void store_channels(char* g_tap, int32_t vector, int32_t vectors,
                                               const typename Traits::Element (&r)[Traits::kChannels]) {
  if constexpr (Traits::kFloat32) {
    float high[4], low[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      high[c] = ptx::round_tf32(r[c]);
      low[c] = element::low_term(r[c], high[c]);
    }
    *reinterpret_cast<float4*>(g_tap + vector * 16) = float4{high[0], high[1], high[2], high[3]};
    if constexpr (Traits::kSplit) {
      *reinterpret_cast<float4*>(g_tap + (vectors + vector) * 16) = float4{low[0], low[1], low[2], low[3]};
    }
  } else {
    uint4 words;
    memcpy(&words, r, 16);
    *reinterpret_cast<uint4*>(g_tap + vector * 16) = words;
  }
}

// Element offset of a channel of GEMM N in the weight.
__device__ __forceinline__ int64_t channel_offset(const Params& params, int32_t n) {
  const bool second = params.split > 0 && n >= params.split;
  return (second ? n - params.split : n) * params.n_stride + (second ? params.split_offset : 0);
}

// First column and channel of a block of kPackColumns columns and a step of K.
struct Corner {
  int32_t column, step, chunk;  // column in the channel tile, step in the stage, chunk
  int32_t columns, channels;    // number that exist from here on
  int64_t from;                 // elements
  int64_t to;                   // bytes to the channel tile
};

template <typename Traits>
__device__ __forceinline__ Corner corner_of(const Params& params, int32_t number) {
  Corner corner;
  corner.column = number % params.column_blocks * kPackColumns;
  number /= params.column_blocks;
  corner.step = number % params.k_steps;
  number /= params.k_steps;
  corner.chunk = number % params.num_chunks;
  number /= params.num_chunks;
  const int32_t channel_tile = number % params.channel_tiles, group = number / params.channel_tiles;
  const int32_t n = channel_tile * params.block_n + corner.column;
  const int32_t k = (corner.chunk * params.k_steps + corner.step) * 2 * Traits::kChannels;
  corner.columns = params.n_channels - n;
  corner.channels = params.k_channels - k;
  corner.from = group * params.group_stride + n * params.n_stride + k * params.k_stride;
  corner.to = (int64_t{group} * params.channel_tiles + channel_tile) * params.packed_tile_step;
  return corner;
}

#endif

}  // namespace convt::pack
