// Accumulators -> cluster reduction -> bias -> result, directly from registers. The tile's shape makes a thread's
// results contiguous in memory.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "patch_sm90a/tile.cuh"
#include "ptx/shared.cuh"
#include "reduce/cluster.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using reduce::ClusterSlice;

// The slice of columns that this CTA stores. CTAs of a cluster share a tile if the kernel gathers and tiles are few.
template <typename Shape>
__device__ __forceinline__ ClusterSlice slice_of_block(const Params& params) {
  return reduce::slice_of_block(Shape::kShares ? params.splits : 1, Shape::kBlocks * kPatchChannels);
}

// Called by all consumer threads of all CTAs of a cluster. `s_bytes` must be free.
template <typename Shape>
__device__ __forceinline__ void reduce_scatter_dsmem(Accumulators<Shape>& acc, const Params& params,
                                                     const ClusterSlice& share, uint32_t s_bytes) {
  constexpr int kThreads = Shape::kConsumers * 128, kBlocks = Shape::kBlocks * kPatchChannels / 8;
  const auto plane = [&](int) { return &acc.r[0][0]; };  // the blocks of 64 columns are contiguous
  reduce::reduce_scatter_dsmem<kThreads, 1, kBlocks>(plane, params.splits, share, s_bytes);
}

// Element offset of a position's patch from the tile's first channel in the first image; -1 if the position does not
// exist.
template <typename Shape>
__device__ __forceinline__ int64_t patch_offset(const Params& params, const Tile& tile, int32_t position) {
  if (position >= params.positions) return -1;
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  const int32_t row = params.by_row(place, &column);
  const int32_t rows = Shape::kGathers ? 1 : params.by_tap_rows.value;
  return image_offset(params, image, params.result_batch, params.result_stride[0]) +
         row * rows * params.result_stride[2] + tap_row_offset(params, tile.tap_h, params.result_stride[2]) +
         (column * params.kernel_w + tile.tap_w) * params.result_stride[3];
}

// The bias of a tile's channels, copied from global memory to a buffer of the warp in shared memory. A global load
// between stores would wait for them. Gradients of the input have no bias.
template <typename Shape>
struct Bias {
  float r[2];

  __device__ __forceinline__ void load(const Params& params, const Tile& tile) {
    const int32_t first = tile.channel_tile * kPatchChannels + static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int32_t channel = first + 32 * k, single = channel - (channel >= params.split ? params.split : 0);
      r[k] =
          epilogue::bias_of<typename Shape::Element>(params, tile.group, params.bias_channels, single >> params.paired);
    }
  }
  __device__ __forceinline__ void store(uint32_t s_bias) const {
    __syncwarp();  // all lanes have finished the previous tile
#pragma unroll
    for (int k = 0; k < 2; ++k) ptx::store_shared(s_bias + (threadIdx.x % 32 + 32 * k) * 4, __float_as_uint(r[k]));
    __syncwarp();
  }
};

// The bias of this thread's two columns of the j-th block of eight.
template <typename Shape>
__device__ __forceinline__ void load_bias(float (&bias)[2], uint32_t s_bias, int j) {
  if constexpr (Shape::kGathers) {
    bias[0] = bias[1] = 0;
  } else {
    ptx::load_shared<0>(bias, s_bias + (8 * j + threadIdx.x % 4 * 2) * 4);
  }
}

template <typename Shape>
__device__ __forceinline__ int32_t first_channel(const Tile& tile) {
  return tile.channel_tile * kPatchChannels * (Shape::kGathers ? Shape::kBlocks : 1);
}

// NCHW. A thread's two positions are contiguous in memory, unless a row ends between them.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_planes(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                             const ClusterSlice& share, uint32_t s_bias) {
  using Element = typename Shape::Element;
  constexpr int kColumns = Shape::kColumns;
  int64_t offset[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) offset[h] = patch_offset<Shape>(params, tile, tile.begin + position_of_thread<Shape>(h));
  if (offset[0] < 0) return;
  const bool neighbours = Shape::kNeighbours && offset[1] == offset[0] + kColumns;
  // The next block is the next row of the patch, or the next channels.
  constexpr int kBlockChannels = Shape::kGathers ? kPatchChannels : 0;
  const int64_t block_step = Shape::kGathers ? kPatchChannels * params.result_stride[1] : params.result_stride[2];
  const int32_t first = first_channel<Shape>(tile) + static_cast<int32_t>(threadIdx.x % 4) * 2;
  Element* g_channel = static_cast<Element*>(params.result) +
                       (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1];
#pragma unroll
  for (int j = 0; j < kPatchChannels / 8; ++j) {
    float bias[2];
    load_bias<Shape>(bias, s_bias, j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t channel = first + 8 * j + i;
      Element* g = g_channel + (8 * j + i) * params.result_stride[1] + (i == 1 ? params.odd_channel : 0);
#pragma unroll
      for (int row = 0; row < Shape::kBlocks / kColumns; ++row, g += block_step) {
        if (channel + row * kBlockChannels >= params.n_channels) continue;
        if (Shape::kShares && !share.has(8 * row + j)) continue;
        float both[2 * kColumns];
#pragma unroll
        for (int k = 0; k < 2 * kColumns; ++k) {
          both[k] = epilogue::finish(acc.r[row * kColumns + k % kColumns][4 * j + 2 * (k / kColumns) + i], bias[i]);
        }
        if constexpr (kSteps) {
          epilogue::Places<2> places;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            places.channel[h] = tile.group * params.n_channels + channel;
            places.left[h] = offset[h] >= 0 ? kColumns : 0;
            places.offset[h] = g + offset[h] - static_cast<Element*>(params.result);
          }
          epilogue::run_steps<Element, 2, kColumns, false>(params.steps, places, params.unit >= kColumns, both);
        }
        if (neighbours) {
          epilogue::store_neighbours(g + offset[0], both, 2 * kColumns, params.unit, 1);
        } else {
          float values[2][kColumns];
#pragma unroll
          for (int k = 0; k < 2 * kColumns; ++k) values[k / kColumns][k % kColumns] = both[k];
          epilogue::store_neighbours(g + offset[0], values[0], kColumns, params.unit, 1);
          if (offset[1] >= 0) epilogue::store_neighbours(g + offset[1], values[1], kColumns, params.unit, 1);
        }
      }
    }
  }
}

// Stores gradients if a thread holds less than 16 bytes of a channel. Threads of adjacent positions exchange one of
// their two channels, so that each stores twice as many results of the other. Requires four positions to be contiguous
// in memory (params.exchange).
template <typename Shape>
__device__ __forceinline__ void store_exchanged(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                                const ClusterSlice& share) {
  using Element = typename Shape::Element;
  constexpr int kWords = 2 * Shape::kElement / 4;
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), odd = lane / 4 % 2;
  const int64_t offset = patch_offset<Shape>(params, tile, tile.begin + position_of_thread<Shape>(0) - 2 * odd);
  const int32_t first = first_channel<Shape>(tile) + lane % 4 * 2;
  Element* g_first = static_cast<Element*>(params.result) + offset +
                     (int64_t{tile.group} * params.n_channels + first + odd) * params.result_stride[1];
#pragma unroll
  for (int j = 0; j < kPatchChannels / 8; ++j) {
    Element* g = g_first + 8 * j * params.result_stride[1];
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block, g += kPatchChannels * params.result_stride[1]) {
      if (Shape::kShares && !share.has(8 * block + j)) continue;
      uint32_t words[2][kWords];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Element elements[2] = {element::to_element<Element>(acc.r[block][4 * j + i]),
                                     element::to_element<Element>(acc.r[block][4 * j + 2 + i])};
        memcpy(words[i], elements, sizeof(elements));
      }
      uint32_t both[2 * kWords];
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? words[0][word] : words[1][word], 4);
        both[word] = odd ? other : words[0][word];
        both[kWords + word] = odd ? words[1][word] : other;
      }
      if (offset < 0 || first + 8 * j + odd + block * kPatchChannels >= params.n_channels) continue;
      epilogue::store_vector(reinterpret_cast<uint32_t*>(g), both);
    }
  }
}

// channels_last. The weights' channels are permuted so that a thread holds 16 contiguous bytes.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_channels(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                               uint32_t s_bias) {
  using Element = typename Shape::Element;
  constexpr int kInterleaved = 8 / Shape::kElement;  // blocks of 8 columns whose pairs are contiguous channels
  const int32_t first = tile.channel_tile * kPatchChannels + static_cast<int32_t>(threadIdx.x % 4) * 2 * kInterleaved;
  auto* g_channel = static_cast<Element*>(params.result) + int64_t{tile.group} * params.n_channels + first;
  int64_t offset[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) offset[h] = patch_offset<Shape>(params, tile, tile.begin + position_of_thread<Shape>(h));
#pragma unroll
  for (int m = 0; m < kPatchChannels / 8 / kInterleaved; ++m) {
    float bias[2 * kInterleaved];
#pragma unroll
    for (int k = 0; k < 2 * kInterleaved; k += 2) {
      float pair[2];
      ptx::load_shared<0>(pair, s_bias + ((8 * m + threadIdx.x % 4 * 2) * kInterleaved + k) * 4);
      bias[k] = pair[0];
      bias[k + 1] = pair[1];
    }
    const int32_t channel = first + m * 8 * kInterleaved;
#pragma unroll
    for (int tap = 0; tap < kPatchTaps; ++tap) {
      const bool two_rows = params.kernel_w <= 2;
      const int64_t of_tap = (two_rows ? tap / 2 : 0) * params.tap_row +
                             (two_rows ? tap % 2 : tap) * params.tap_column + m * 8 * kInterleaved;
      constexpr int kCount = 2 * kInterleaved;
      float both[2 * kCount];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          both[h * kCount + k] = epilogue::finish(acc.r[tap][4 * (m * kInterleaved + k / 2) + 2 * h + k % 2], bias[k]);
        }
      }
      if constexpr (kSteps) {
        epilogue::Places<2> places;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          places.channel[h] = tile.group * params.n_channels + channel;
          places.left[h] = offset[h] >= 0 ? params.n_channels - channel : 0;
          places.offset[h] = g_channel + offset[h] + of_tap - static_cast<Element*>(params.result);
        }
        epilogue::run_steps<Element, 2, kCount, true>(params.steps, places, params.unit >= kCount, both);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (offset[h] < 0 || channel >= params.n_channels) continue;
        float values[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) values[k] = both[h * kCount + k];
        epilogue::store_neighbours(g_channel + offset[h] + of_tap, values, params.n_channels - channel, params.unit, 1);
      }
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
