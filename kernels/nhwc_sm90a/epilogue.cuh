// Sums -> bias -> result, straight from registers: the weights' channels are in such an order that a thread has 16
// bytes of neighbours, and four threads whole sectors.
#pragma once

#include "epilogue/store_neighbours.cuh"
#include "nhwc_sm90a/parts.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename Shape>
__device__ __forceinline__ void store_tile(const Sums<Shape>& sums, const Params& params, const Tile& tile,
                                           const Share& share, int32_t warp) {
  using Element = typename Shape::Element;
  constexpr int kInterleaved = nhwc_interleaved(Shape::kElement);
  constexpr int kCount = 2 * kInterleaved;  // neighbouring channels of a thread
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t first = tile.channel_tile * Shape::kN + lane % 4 * kCount;
  const auto* g_bias = static_cast<const Element*>(params.bias);
  auto* g_first = static_cast<Element*>(params.result) + first;
  int64_t offset[Shape::kBlocks][2];
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Position position;
      const int32_t number = positions_before<Shape>(warp, block) + lane / 4 + 8 * h;
      const bool exists = position_of_tile(params, number, &position);
      const int32_t column = (tile.column + position.column) * params.scale_w + tile.phase_w;
      const int32_t row = (tile.row + position.row) * params.scale_h + tile.phase_h;
      const int32_t image = tile.image + position.image;
      offset[block][h] = image * params.result_stride[0] + row * params.result_stride[2] +
                         column * params.result_stride[3];
      if (!exists || column >= params.result_w || row >= params.result_h || image >= params.batch) {
        offset[block][h] = -1;
      }
    }
  }
#pragma unroll
  for (int m = 0; m < Shape::kN / 8 / kInterleaved; ++m) {
    const int32_t channel = first + m * 4 * kCount;
    float bias[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      bias[k] = g_bias != nullptr && channel + k < params.n_channels ? wgmma_sm90a::to_float(g_bias[channel + k]) : 0;
    }
    if (channel >= params.n_channels || !share.has(m * kInterleaved)) continue;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (offset[block][h] < 0) continue;
        float values[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          values[k] = sums.r[block][4 * (m * kInterleaved + k / 2) + 2 * h + k % 2] + bias[k];
        }
        epilogue::store_neighbours(g_first + offset[block][h] + m * 4 * kCount, values, params.n_channels - channel,
                                   params.unit, 1);
      }
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
