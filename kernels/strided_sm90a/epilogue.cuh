// Accumulators -> bias -> result, NCHW, straight from registers: a thread's accumulators are neighbours in memory.
#pragma once

#include "epilogue/bias.cuh"
#include "epilogue/store_neighbours.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "reduce/cluster.cuh"
#include "strided_sm90a/tile.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::Share;

// Which of a tile's channels a warpgroup stores, where both have the same positions.
template <typename Shape>
__device__ __forceinline__ Share share_of_warpgroup(int32_t warpgroup) {
  return {warpgroup, 31 - __clz(Shape::kN / 8 / kStridedConsumers)};
}

// Both warpgroups' accumulators of the same positions -> each one's of its channels. `s_bytes` is free where nobody
// multiplies.
template <typename Shape>
__device__ __forceinline__ void add_warpgroups(Accumulators<Shape>& acc, const Share& share, uint32_t s_bytes) {
  constexpr int kPlanes = Shape::kPhases * 2, kBlocks = Shape::kN / 8;
  constexpr uint32_t kStep = 128 * 16, kBytes = kPlanes * kBlocks / kStridedConsumers * kStep;
  const uint32_t s_thread = s_bytes + threadIdx.x % 128 * 16;
  const auto place = [&](int block, int plane) { return (share.place(block) * kPlanes + plane) * kStep; };
  ptx::named_barrier(1, kConsumerThreads);  // nobody multiplies any more
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (share.has(block)) continue;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      uint32_t four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] = __float_as_uint(acc.r[plane / 2][plane % 2][4 * block + i]);
      ptx::store_shared(s_thread + (1 - share.rank) * kBytes + place(block, plane), four);
    }
  }
  ptx::named_barrier(1, kConsumerThreads);  // what the other has sent is here
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (!share.has(block)) continue;
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      float four[4];
      ptx::load_shared<0>(four, s_thread + share.rank * kBytes + place(block, plane));
#pragma unroll
      for (int i = 0; i < 4; ++i) acc.r[plane / 2][plane % 2][4 * block + i] += four[i];
    }
  }
}

// The bias of this thread's channels in some blocks of 8, loaded together: one after the other, between stores, the
// loads took a tenth of a tile's time.
template <typename Element>
struct Bias {
  static constexpr int kBlocks = 4;
  float r[kBlocks][2];

  __device__ __forceinline__ void load(const Params& params, const Tile& tile, int32_t first) {
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        r[j][i] = epilogue::bias_of<Element>(params.bias, tile.group, params.n_channels, first + 8 * j + i);
      }
    }
  }
};

// Neighbours in memory, 8 or 16 bytes.
template <typename Element, int kCount>
__device__ __forceinline__ void store_run(const Params& params, Element* g, const Element (&elements)[kCount]) {
  if (params.unit >= kCount) return epilogue::stream_vector(g, elements);
#pragma unroll
  for (int i = 0; i < kCount; ++i) g[i] = elements[i];
}

// The output: 8 neighbouring columns of a channel. In float32 that is 32 bytes, two stores: threads of neighbouring
// quads exchange halves, so that each of them reaches whole sectors.
template <typename Shape>
__device__ __forceinline__ void store_output(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                             const Quad& quad, const Share& share) {
  using Element = typename Shape::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, odd = lane / 4 % 2;
  const int32_t first = tile.channel_tile * Shape::kN + lane % 4 * 2;
  Element* g_first = static_cast<Element*>(params.result) +
                     (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1];
  using Bias = Bias<Element>;
  Bias bias;
  int64_t even = quad.result, odd_quad = quad.result;
  if constexpr (Shape::kElement == 4) {
    const int64_t other = __shfl_xor_sync(0xffffffffu, quad.result, 4);
    (odd ? even : odd_quad) = other;
    even += even >= 0 ? 4 * odd : 0;
    odd_quad += odd_quad >= 0 ? 4 * odd : 0;
  }
#pragma unroll
  for (int j = 0; j < Shape::kN / 8; ++j) {
    if (j % Bias::kBlocks == 0) bias.load(params, tile, first + 8 * j);
    if (!share.has(j)) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t channel = first + 8 * j + i;
#pragma unroll
      for (int phase = 0; phase < Shape::kPhases; phase += 2) {
        Element* g = g_first + (8 * j + i) * params.result_stride[1] + phase / 2 * params.result_stride[2];
        float values[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          values[k] = acc.of_position(phase + k % 2, k / 2, 4 * j + i) + bias.r[j % Bias::kBlocks][i];
        }
        if constexpr (Shape::kElement == 4) {
          float of_even[4], of_odd[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float other = __shfl_xor_sync(0xffffffffu, odd ? values[k] : values[4 + k], 4);
            of_even[k] = odd ? other : values[k];
            of_odd[k] = odd ? values[4 + k] : other;
          }
          if (channel >= params.n_channels) continue;
          if (even >= 0) store_run(params, g + even, of_even);
          if (odd_quad >= 0) store_run(params, g + odd_quad, of_odd);
        } else {
          if (channel >= params.n_channels || even < 0) continue;
          Element elements[8];
#pragma unroll
          for (int k = 0; k < 8; ++k) elements[k] = element::to_element<Element>(values[k]);
          store_run(params, g + even, elements);
        }
      }
    }
  }
}

// The input's gradient: 4 neighbouring columns of a channel.
template <typename Shape>
__device__ __forceinline__ void store_gradient(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                               const Quad& quad, const Share& share) {
  using Element = typename Shape::Element;
  const int32_t first = tile.channel_tile * Shape::kN + static_cast<int32_t>(threadIdx.x) % 4 * 2;
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

}  // namespace convt::strided_sm90a
