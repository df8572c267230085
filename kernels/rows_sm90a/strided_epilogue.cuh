// Accumulators -> bias -> result in NCHW, directly from registers. A thread's results are contiguous in memory.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "reduce/cluster.cuh"
#include "rows_sm90a/strided_tile.cuh"

namespace convt::rows_sm90a::strided {

#ifdef CONVT_HAS_WGMMA

using reduce::ClusterSlice;

// Stores 8 or 16 contiguous bytes.
template <typename Element, int kCount>
__device__ __forceinline__ void store_run(const Params& params, Element* g, const Element (&elements)[kCount]) {
  if (params.unit >= kCount) return epilogue::stream_vector(g, elements);
#pragma unroll
  for (int i = 0; i < kCount; ++i) g[i] = elements[i];
}

// Stores the output: 8 contiguous columns per channel. In float32 these are 32 bytes, two stores. Threads of adjacent
// quads exchange halves, so that each store instruction writes whole sectors.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_output(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                             const Quad& quad, const ClusterSlice& share) {
  using Element = typename Shape::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), odd = lane / 4 % 2;
  const int32_t first = tile.channel_tile * Shape::kN + lane % 4 * 2;
  Element* g_first = static_cast<Element*>(params.result) +
                     (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1];
  // The bias of several blocks is loaded at once. Loads between stores would take a tenth of a tile's time.
  constexpr int kBiasBlocks = 4;
  constexpr int kRows = Shape::kPhases / 2;
  float bias[kBiasBlocks][2];
  int64_t even = quad.result, odd_quad = quad.result;
  if constexpr (Shape::kElement == 4) {
    const int64_t other = __shfl_xor_sync(0xffffffffu, quad.result, 4);
    (odd ? even : odd_quad) = other;
    even += even >= 0 ? 4 * odd : 0;
    odd_quad += odd_quad >= 0 ? 4 * odd : 0;
  }
#pragma unroll
  for (int j = 0; j < Shape::kN / 8; ++j) {
    if (j % kBiasBlocks == 0) {
#pragma unroll
      for (int k = 0; k < 2 * kBiasBlocks; ++k) {
        bias[k / 2][k % 2] =
            epilogue::bias_of<Element, kSteps>(params, tile.group, params.n_channels, first + 8 * (j + k / 2) + k % 2);
      }
    }
    if (!share.has(j)) continue;
    // [channel][row][column]. With steps, two channels are processed at once to overlap their latencies.
    constexpr int kTogether = kSteps ? 2 : 1;
    float values[kTogether * kRows * 8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t channel = first + 8 * j + i;
      const int of_channel = i % kTogether * kRows * 8;
      if (i % kTogether == 0) {
#pragma unroll
        for (int k = 0; k < kTogether * kRows * 8; ++k) {
          const int row = k / 8 % kRows, column = k % 8, which = i + k / (8 * kRows);
          const float sum = acc.of_position(row * 2 + column % 2, column / 2, 4 * j + which);
          values[k] = epilogue::finish(sum, bias[j % kBiasBlocks][which]);
        }
      }
      if constexpr (kSteps) {
        if (i == 0) {
          epilogue::Places<2 * kRows> places;
#pragma unroll
          for (int run = 0; run < 2 * kRows; ++run) {
            const int32_t of_run = channel + run / kRows;
            places.channel[run] = tile.group * params.n_channels + of_run;
            places.left[run] = quad.result >= 0 && of_run < params.n_channels ? 8 : 0;
            places.offset[run] =
                quad.result + places.channel[run] * params.result_stride[1] + run % kRows * params.result_stride[2];
          }
          const bool by_vectors = params.unit * Shape::kElement >= 16;
          epilogue::run_steps<Element, 2 * kRows, 8, false>(params.steps, places, by_vectors, values);
        }
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        Element* g = g_first + (8 * j + i) * params.result_stride[1] + row * params.result_stride[2];
        if constexpr (Shape::kElement == 4) {
          float of_even[4], of_odd[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float first_half = values[of_channel + 8 * row + k],
                        second_half = values[of_channel + 8 * row + 4 + k];
            const float other = __shfl_xor_sync(0xffffffffu, odd ? first_half : second_half, 4);
            of_even[k] = odd ? other : first_half;
            of_odd[k] = odd ? second_half : other;
          }
          if (channel >= params.n_channels) continue;
          if (even >= 0) store_run(params, g + even, of_even);
          if (odd_quad >= 0) store_run(params, g + odd_quad, of_odd);
        } else {
          if (channel >= params.n_channels || even < 0) continue;
          Element elements[8];
#pragma unroll
          for (int k = 0; k < 8; ++k) elements[k] = element::to_element<Element>(values[of_channel + 8 * row + k]);
          store_run(params, g + even, elements);
        }
      }
    }
  }
}

// Stores the gradient of the input: 4 contiguous columns per channel.
template <typename Shape>
__device__ __forceinline__ void store_gradient(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                               const Quad& quad, const ClusterSlice& share) {
  using Element = typename Shape::Element;
  const int32_t first = tile.channel_tile * Shape::kN + static_cast<int32_t>(threadIdx.x % 4) * 2;
  if (quad.result < 0) return;
  Element* g_first = static_cast<Element*>(params.result) + quad.result +
                     (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1];
#pragma unroll
  for (int j = 0; j < Shape::kN / 8; ++j) {
    if (!share.has(j)) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (first + 8 * j + i >= params.n_channels) continue;
      Element elements[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        elements[k] = element::to_element<Element>(acc.of_position(0, k, 4 * j + i));
      }
      store_run(params, g_first + (8 * j + i) * params.result_stride[1], elements);
    }
  }
}

#endif

}  // namespace convt::rows_sm90a::strided
