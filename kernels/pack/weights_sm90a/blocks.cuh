// Packs many taps of some channels per CTA. If taps are contiguous in memory, packing tap by tap would read 4 bytes per
// sector. Here weights are read in memory order, taps first, and written in packed order.
#pragma once

#include "pack/weights_sm90a/places.cuh"

namespace convt::pack {

#ifdef CONVT_HAS_WGMMA

// The weights of a CTA: kPackColumns columns, the channels of a step of K, and some taps. In shared memory each column
// starts in a different bank for every memory layout.
template <typename Traits>
struct Block {
  static constexpr int kChannels = 2 * Traits::kChannels;
  static constexpr int kItems = kPackColumns * kChannels;  // per tap
  static constexpr int kElements = kItems * (kPackTaps + 1);
  static constexpr int kBatch = 8;  // loads in flight per thread
  int32_t taps;
  bool columns_first;  // columns have a smaller stride in memory than channels of K

  __device__ __forceinline__ int32_t place(int32_t column, int32_t channel, int32_t tap) const {
    return columns_first ? (channel * kPackColumns + column) * (taps | 1) + tap
                         : column * (kChannels * taps + 1) + channel * taps + tap;
  }
};

// Loads the weights of a 3 x 3 kernel with contiguous taps, 16 bytes at a time. Taps stay in memory order.
template <typename Traits>
__device__ __forceinline__ void load_runs(const Params& params, const Corner& corner, const Block<Traits>& block,
                                          Tap* s_taps, typename Traits::Element* s_weights) {
  using Element = typename Traits::Element;
  using Block = Block<Traits>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  constexpr int kOfColumns = kPackColumns * 9 / kVector, kOfChannels = Block::kChannels * 9 / kVector;
  constexpr int kItems = Block::kItems * 9 / kVector;
  constexpr int kOfThread = (kItems + kPackThreads - 1) / kPackThreads;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t rows = block.columns_first ? corner.channels : corner.columns;
  const int32_t length = (block.columns_first ? corner.columns : corner.channels) * 9;
  const int64_t step = block.columns_first ? params.k_stride : params.n_stride;
  const Element* g_first = static_cast<const Element*>(params.w) + corner.from;
  uint4 r[kOfThread];
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int32_t item = thread + i * kPackThreads;
    const int32_t row = block.columns_first ? item / kOfColumns : item / kOfChannels;
    const int32_t at = (block.columns_first ? item % kOfColumns : item % kOfChannels) * kVector;
    r[i] = uint4{0, 0, 0, 0};
    if (item < kItems && row < rows && at < length) {
      r[i] = __ldg(reinterpret_cast<const uint4*>(g_first + row * step + at));
    }
  }
  if (thread < 9) {
    const Tap tap = find_tap(params, thread);
    s_taps[tap.from] = tap;
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int32_t item = thread + i * kPackThreads;
    if (item >= kItems) break;
    if (block.columns_first) {
      reinterpret_cast<uint4*>(s_weights)[item] = r[i];
    } else {
      Element elements[kVector];
      memcpy(elements, &r[i], 16);
      Element* s_run = s_weights + block.place(item / kOfChannels, 0, 0) + item % kOfChannels * kVector;
#pragma unroll
      for (int e = 0; e < kVector; ++e) s_run[e] = elements[e];
    }
  }
}

// A CTA packs some taps of kPackColumns columns of a step of K.
template <typename Traits>
__device__ __forceinline__ void pack_block(const Params& params, int32_t number, Tap* s_taps, uint4* s_bytes) {
  using Element = typename Traits::Element;
  using Block = Block<Traits>;
  auto* s_weights = reinterpret_cast<Element*>(s_bytes);
  const int32_t first_tap = number % params.tap_blocks * params.block_taps;
  number /= params.tap_blocks;
  const Corner corner = corner_of<Traits>(params, number);
  const Block block{min(params.block_taps, params.program.total_taps - first_tap), params.n_stride < params.k_stride};
  const auto thread = static_cast<int32_t>(threadIdx.x);

  const int32_t tap_of_thread = thread & ((1 << params.taps_log2) - 1);
  if (params.whole_runs) {
    load_runs<Traits>(params, corner, block, s_taps, s_weights);
  } else if (tap_of_thread < block.taps) {
    const Tap tap = find_tap(params, first_tap + tap_of_thread);
    if (thread == tap_of_thread) s_taps[thread] = tap;
    const Element* g_first = static_cast<const Element*>(params.w) + corner.from + tap.from;
    const int32_t threads = kPackThreads >> params.taps_log2;  // per tap
    for (int32_t begin = thread >> params.taps_log2; begin < Block::kItems; begin += Block::kBatch * threads) {
      Element r[Block::kBatch];
      int32_t place[Block::kBatch];
#pragma unroll
      for (int i = 0; i < Block::kBatch; ++i) {
        const int32_t item = begin + i * threads;
        const int32_t n = block.columns_first ? item % kPackColumns : item / Block::kChannels;
        const int32_t k = block.columns_first ? item / kPackColumns : item % Block::kChannels;
        const bool is_mine = item < Block::kItems;
        const bool exists = is_mine && n < corner.columns && k < corner.channels;
        place[i] = is_mine ? block.place(n, k, tap_of_thread) : -1;
        r[i] = exists ? __ldg(g_first + n * params.n_stride + k * params.k_stride) : element::to_element<Element>(0.0f);
      }
#pragma unroll
      for (int i = 0; i < Block::kBatch; ++i) {
        if (place[i] >= 0) s_weights[place[i]] = r[i];
      }
    }
  }
  __syncthreads();

  char* g_tile = static_cast<char*>(params.packed) + corner.to;
  const int32_t vectors = params.k_steps * 2 * params.block_n;  // per tap
  for (int32_t item = thread; item < kPackColumns * 2 * block.taps; item += kPackThreads) {
    const int32_t column = item % kPackColumns, plane = item / kPackColumns % 2;
    const int32_t tap = item / kPackColumns / 2;
    const int32_t n = channel_of_column(corner.column + column, params.interleaved) - corner.column;
    char* g_packed = g_tile + s_taps[tap].to + int64_t{corner.chunk} * s_taps[tap].stage_bytes;
    const int32_t vector = place_of_vector(params, corner.step * 2 + plane, corner.column + column);
    Element r[Traits::kChannels];
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) {
      r[c] = s_weights[block.place(n, plane * Traits::kChannels + c, tap)];
    }
    store_channels<Traits>(g_packed, vector, vectors, r);
  }
}

#endif

}  // namespace convt::pack
