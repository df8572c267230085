// Gradient of the input of memory-bound layers: small groups, few channels, strides that leave most phases without taps
// (kernels/ORDER.md defines the order of each sum).
//     gx[n, ci, ih, iw] = sum gy[n, co, ih * stride - padding + kh * dilation, ...] * w[ci, co, kh, kw]
// A CTA keeps the weights of its channels in shared memory and loops over tiles of positions. Pipeline stages load the
// rows of grad_output that a tile's taps read, a few channels per stage. Launched by thin/launch.cpp.
#pragma once

#include "thin/grad_input_layout.h"
#include "thin/grad_input_loader.cuh"
#include "thin/grad_input_mainloop.cuh"

namespace convt::thin {

// Tile and channels of a stage, in pipeline order.
struct StageCursor {
  int32_t tile;
  int32_t chunk;
  int32_t slot;

  __device__ __forceinline__ void advance(const GradInputParams& params) {
    slot = slot + 1 == params.stages ? 0 : slot + 1;
    if (++chunk < params.chunks) return;
    chunk = 0;
    ++tile;
  }
};

template <typename Traits>
__global__ void __launch_bounds__(max_thin_gradient_threads(Traits::kSums), min_thin_gradient_blocks(Traits::kSums))
    grad_input_kernel(const __grid_constant__ GradInputParams params) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kChannels, kPositions = Traits::kPositions;
  constexpr int32_t kBytes = sizeof(Element);
  extern __shared__ __align__(16) unsigned char s_bytes[];
  auto* s_weight = reinterpret_cast<float*>(s_bytes);

  // Prologue: the copies of the first stages overlap with reading the weights.
  const GradInputPass pass = grad_input_pass(params);
  StageCursor ahead{pass.first_tile, 0, 0};
  auto load_ahead = [&] {
    if (ahead.tile < pass.end_tile) {
      load_stage<Element>(params, pass, grad_input_tile(params, ahead.tile), ahead.chunk * params.chunk_co,
                          s_bytes + params.stage_begin + ahead.slot * params.stage_bytes);
    }
    ptx::cp_async_commit();
    ahead.advance(params);
  };
#pragma unroll 1
  for (int32_t i = 0; i < params.stages; ++i) load_ahead();
  load_weight<Element>(params, pass, s_weight);

  // This thread computes kChannels channels of one group, at kPositions rows of one column of every tile.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t warp_w = warp % params.warps_w;
  const int32_t ci = warp / params.warps_w % params.warps_ci * kChannels;  // within the pass
  const int32_t group = warp / params.warps_w / params.warps_ci;  // within the pass
  const int32_t columns_32 = params.tile_w / 32;
  const int32_t row = warp_w / columns_32 * kPositions;  // within the tile
  const int32_t column = warp_w % columns_32 * 32 + static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t place = (row * params.pitches.position + column * params.w.stride) * kBytes;  // in a channel

  StageCursor cursor{pass.first_tile, 0, 0};
#pragma unroll 1
  for (; cursor.tile < pass.end_tile;) {
    const GradInputTile tile = grad_input_tile(params, cursor.tile);
    const int32_t h = tile.h + row, w = tile.w + column;
    float r_acc[kChannels][kPositions] = {};
    StageOperands operands;
    operands.s_bytes = s_bytes;
    operands.channel_bytes = params.pitches.channel * kBytes;
    operands.tap_bytes = params.pitches.tap * kBytes;
    operands.position_bytes = params.pitches.position * kBytes;
    operands.row = h * params.h.stride - params.h.padding;
    operands.columns_outside = w < params.w.in ? taps_outside(params.w, w) : 0;  // columns past the end are not stored
    const bool rows_inside =
        operands.row >= 0 &&
        operands.row + (kPositions - 1) * params.h.stride + (params.h.kernel - 1) * params.h.dilation < params.h.out;
    const bool inside = rows_inside && __all_sync(0xffffffffu, operands.columns_outside == 0) != 0;
#pragma unroll 1
    for (int32_t chunk = 0; chunk < params.chunks; ++chunk) {
      ptx::cp_async_wait_all_but(params.stages - 1);
      __syncthreads();  // the stage (and initially the weights) has arrived for all threads
      const int32_t co = chunk * params.chunk_co;
      operands.num_co = min(params.chunk_co, params.group_co - co);
      operands.source = params.stage_begin + cursor.slot * params.stage_bytes +
                        stage_shift(stage_source<Element>(params, pass, tile, co)) * kBytes +
                        group * params.group_co * operands.channel_bytes + place;
      operands.s_weight =
          s_weight + (group * params.group_co + co) * params.h.kernel * params.w.kernel * params.block_ci + ci;
      if (inside) {
        multiply_stage<Traits, true>(params, operands, r_acc);
      } else {
        multiply_stage<Traits, false>(params, operands, r_acc);
      }
      __syncthreads();  // all threads have read the stage, whose slot is refilled
      load_ahead();
      cursor.advance(params);
    }

    // Round once. Lanes store neighbouring columns.
    if (group >= pass.num_groups || w >= params.w.in) continue;
    auto* g_column = static_cast<Element*>(params.gx) + tile.image * params.gx_stride[0] +
                     (int64_t{pass.group + group} * params.group_ci + pass.ci + ci) * params.gx_stride[1] +
                     h * params.gx_stride[2] + w * params.gx_stride[3];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      if (ci + c >= pass.num_ci) break;
      Element* g_position = g_column + c * params.gx_stride[1];
#pragma unroll
      for (int j = 0; j < kPositions; ++j, g_position += params.gx_stride[2]) {
        if (h + j < params.h.in) *g_position = element::to_element<Element>(r_acc[c][j]);
      }
    }
  }
  ptx::cp_async_wait<0>();
}

}  // namespace convt::thin
