// Accumulators -> bias -> shared memory -> result. Separate warps store a tile during the next tile's products. A tile
// stores some of its columns. If tiles overlap, these start and end at sectors of memory, and are written by contiguous
// 16-byte stores.
#pragma once

#include <type_traits>

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "rows_sm90a/window_tile.cuh"

namespace convt::rows_sm90a::window {

#ifdef CONVT_HAS_WGMMA

// Writes a piece of a warpgroup's channels, with bias and epilogue steps, as elements to [channel][row][column]. Steps
// run here because store warps have too few registers. The results' addresses are unknown here.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void stage_piece(const Accumulators<Shape>& acc, int piece, const Params& params,
                                            const Tile& tile, int32_t warp, uint32_t s_staged) {
  constexpr int kPitch = Shape::kStagedPitch;
  constexpr int kBlocks = Shape::kStagedChannels / 8;
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  const uint32_t s_bias = s_staged + Shape::kBiasBegin + lane % 4 * 8;
  const int32_t position = (warp_row(params, warp % 4) * Shape::kRows << params.tile_w_log2) +
                           warp_column(params, warp) * kWindowColumns + lane / 4 * 4;
  const uint32_t s_mine = s_staged + (2 * (lane % 4) * kPitch + position) * Shape::kElement;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const int j = piece * kBlocks + block;
    uint32_t bias[2];
    ptx::load_shared(bias, s_bias + 32 * j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t s_row = s_mine + (8 * block + i) * kPitch * Shape::kElement;
      float values[4 * Shape::kRows];
#pragma unroll
      for (int k = 0; k < 4 * Shape::kRows; ++k) {
        const int c = k % 4;
        values[k] = epilogue::finish(acc.r[k / 4][c / 2][4 * j + 2 * (c % 2) + i], __uint_as_float(bias[i]));
      }
      if constexpr (kSteps) {
        const int32_t channel = tile.channel_tile * Shape::kN + 8 * j + lane % 4 * 2 + i;
        const epilogue::Places<1> places{{tile.group * params.n_channels + channel},
                                         {channel < params.n_channels ? 4 * Shape::kRows : 0}};
        epilogue::run_steps<typename Shape::Element, 1, 4 * Shape::kRows, false>(params.steps, places, false, values);
      }
#pragma unroll
      for (int row = 0; row < Shape::kRows; ++row, s_row += Shape::kElement << params.tile_w_log2) {
        typename Shape::Element elements[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) elements[c] = element::to_element<typename Shape::Element>(values[4 * row + c]);
        uint32_t words[Shape::kElement];
        memcpy(words, elements, sizeof(elements));
        ptx::store_shared(s_row, words);
      }
    }
  }
}

// Loads 16 bytes of shared memory, kBytes per load.
template <int kBytes>
__device__ __forceinline__ uint4 load_vector(uint32_t s_vector) {
  uint32_t words[4];
  if constexpr (kBytes == 16) {
    ptx::load_shared(words, s_vector);
  } else if constexpr (kBytes == 8) {
    // Every second group of eight lanes starts with the second half. Otherwise lanes l and l + 8 would conflict.
    const uint32_t swapped = threadIdx.x & 8;
    uint32_t two[2][2];
    ptx::load_shared(two[0], s_vector + swapped);
    ptx::load_shared(two[1], s_vector + (swapped ^ 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = swapped != 0 ? two[1 - i / 2][i % 2] : two[i / 2][i % 2];
  } else if constexpr (kBytes == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = ptx::load_shared(s_vector + 4 * i);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = ptx::load_shared_16(s_vector + 4 * i) | uint32_t{ptx::load_shared_16(s_vector + 4 * i + 2)} << 16;
    }
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

// Stores 16 bytes to global memory, kBytes per store.
template <int kBytes, typename Element>
__device__ __forceinline__ void store_vector(Element* g_vector, const uint4& vector) {
  using Small = std::conditional_t<kBytes == 4, uint32_t, uint16_t>;
  using Word = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, Small>>;
  Word words[16 / kBytes];
  memcpy(words, &vector, sizeof(words));
#pragma unroll
  for (int i = 0; i < 16 / kBytes; ++i) reinterpret_cast<Word*>(g_vector)[i] = words[i];
}

// Stores columns [begin, end) of a vector at either end of a tile's row. Columns before `begin` stand for columns after
// the tile's last vector.
template <typename Shape>
__device__ __forceinline__ void store_elements(typename Shape::Element* g_vector, uint32_t s_vector, int32_t begin,
                                               int32_t end, int32_t tile_w) {
#pragma unroll
  for (int i = 0; i < Shape::kVector; ++i) {
    const int32_t column = i < begin ? i + tile_w : i;
    if (column >= end) continue;
    if constexpr (Shape::kElement == 4) {
      reinterpret_cast<uint32_t*>(g_vector)[column] = ptx::load_shared(s_vector + 4 * column);
    } else {
      reinterpret_cast<uint16_t*>(g_vector)[column] = ptx::load_shared_16(s_vector + 2 * column);
    }
  }
}

// Stores a warp's share of a warpgroup's staged piece: every kWindowStoreWarps-th channel, with kVectors vectors per
// lane. If tiles overlap, vectors are aligned in global memory, otherwise in the tile. kBytes is their common
// alignment.
template <typename Shape, int kBytes, bool kOverlaps>
__device__ __forceinline__ void store_staged(const Params& params, const Tile& tile, int32_t piece, int32_t consumer,
                                             int32_t warp, uint32_t s_staged) {
  using Element = typename Shape::Element;
  constexpr int kVector = Shape::kVector;
  constexpr int kVectors = kWindowWarps / 2 * kWindowColumns * Shape::kRows / kVector / 32;  // per lane
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), tile_w = 1 << params.tile_w_log2;
  const int32_t vectors_log2 = params.tile_w_log2 - (Shape::kElement == 4 ? 2 : 3);
  const int32_t first_row = tile.row + consumer * (params.tile_h / 2);
  const bool first_tile = tile.inner == 0, last_tile = tile.inner == params.inner_tiles.value - 1;
  const int32_t first_channel = tile.channel_tile * Shape::kN + piece * Shape::kStagedChannels;
  const int32_t channels = min(Shape::kStagedChannels, params.n_channels - first_channel);
  Element* g_channel = static_cast<Element*>(params.result) + tile.image * params.result_stride[0] +
                       (int64_t{tile.group} * params.n_channels + first_channel + warp) * params.result_stride[1] +
                       first_row * params.result_stride[2] + tile.column;
  uint32_t s_channel = s_staged + warp * Shape::kStagedPitch * Shape::kElement;
#pragma unroll 1
  for (int32_t channel = warp; channel < channels; channel += kWindowStoreWarps) {
    Element* g[kVectors];
    uint32_t s[kVectors];
    int32_t begin[kVectors], end[kVectors];  // columns that the tile stores, relative to the vector
    uint4 vector[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int32_t place = i * 32 + lane, row = place >> vectors_log2;
      Element* g_row = g_channel + row * params.result_stride[2];
      int32_t column = (place & (1 << vectors_log2) - 1) * kVector;
      begin[i] = 0;
      end[i] = params.advance_w;
      // Address in elements: sectors and vectors start at multiples.
      const auto memory = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_row) / Shape::kElement);
      if constexpr (kOverlaps) {
        begin[i] = -memory & params.overlap - 1;
        end[i] += begin[i];
      }
      if (first_tile) begin[i] = -tile.column;
      if (last_tile) end[i] = params.result_w - tile.column;
      if (first_row + row >= params.result_h) end[i] = begin[i];
      if constexpr (kOverlaps) column += begin[i] - (memory + begin[i] & kVector - 1);
      g[i] = g_row + column;
      s[i] = s_channel + ((row << params.tile_w_log2) + column) * Shape::kElement;
      begin[i] -= column;
      end[i] -= column;
      vector[i] = load_vector<kOverlaps ? kBytes : 16>(s[i]);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (begin[i] <= 0 && end[i] >= kVector) {
        store_vector<kOverlaps ? 16 : kBytes>(g[i], vector[i]);
      } else if (end[i] > 0) {
        store_elements<Shape>(g[i], s[i], begin[i], end[i], tile_w);
      }
    }
    g_channel += kWindowStoreWarps * params.result_stride[1];
    s_channel += kWindowStoreWarps * Shape::kStagedPitch * Shape::kElement;
  }
}

template <typename Shape, int kBytes>
__device__ __forceinline__ void store_staged(const Params& params, const Tile& tile, int32_t piece, int32_t consumer,
                                             int32_t warp, uint32_t s_staged) {
  if (params.overlap > 0) {
    store_staged<Shape, kBytes, true>(params, tile, piece, consumer, warp, s_staged);
  } else {
    store_staged<Shape, kBytes, false>(params, tile, piece, consumer, warp, s_staged);
  }
}

// Writes a tile's bias to a warpgroup's staged bytes, for its next stage_piece().
template <typename Shape>
__device__ __forceinline__ void stage_bias(const Params& params, const Tile& tile, int32_t thread, uint32_t s_staged) {
  if (thread >= Shape::kN) return;
  const int32_t channel = tile.channel_tile * Shape::kN + thread;
  const float bias = epilogue::bias_of<typename Shape::Element>(params, tile.group, params.n_channels, channel);
  ptx::store_shared(s_staged + Shape::kBiasBegin + 4 * thread, __float_as_uint(bias));
}

// Called by all store warps. Stores all tiles of the CTA.
template <typename Shape>
__device__ __forceinline__ void store_tiles(const Params& params, int32_t warp, uint32_t s_staged,
                                            uint32_t s_barriers) {
  const int32_t thread = warp * 32 + static_cast<int32_t>(threadIdx.x % 32);
  const int32_t bytes = params.granule * Shape::kElement;
  for (int32_t consumer = 0; consumer < 2; ++consumer) {
    stage_bias<Shape>(params, tile_of(params, first_tile(params)), thread, s_staged + consumer * Shape::kStagedBytes);
    ptx::mbarrier_arrive(s_barriers + 16 * consumer + 8);
  }
  uint32_t parity = 0;
  for (int32_t number = first_tile(params); number < params.num_tiles; number += tile_step()) {
    const Tile tile = tile_of(params, number);
    const int32_t next = number + tile_step();
    const bool other_channels = params.channel_tiles.value * params.group_tiles.value > 1 && next < params.num_tiles;
    for (int32_t piece = 0; piece < Shape::kStagedPieces; ++piece, parity ^= 1) {
      for (int32_t consumer = 0; consumer < 2; ++consumer) {
        const uint32_t s_mine = s_staged + consumer * Shape::kStagedBytes, barrier = s_barriers + 16 * consumer;
        ptx::mbarrier_wait(barrier, parity);
        if (bytes == 16) {
          store_staged<Shape, 16>(params, tile, piece, consumer, warp, s_mine);
        } else if (bytes == 8) {
          store_staged<Shape, 8>(params, tile, piece, consumer, warp, s_mine);
        } else if (bytes == 4) {
          store_staged<Shape, 4>(params, tile, piece, consumer, warp, s_mine);
        } else if constexpr (Shape::kElement == 2) {
          store_staged<Shape, 2>(params, tile, piece, consumer, warp, s_mine);
        }
        if (piece == Shape::kStagedPieces - 1 && other_channels) {
          stage_bias<Shape>(params, tile_of(params, next), thread, s_mine);
        }
        ptx::mbarrier_arrive(barrier + 8);
      }
    }
  }
}

#endif

}  // namespace convt::rows_sm90a::window
