// Weights -> the layout that the Hopper engine's matrix descriptors read: for each step of K two planes
// [result channel][16 bytes], and everything that a tile's stage needs in one contiguous piece. Channels beyond the
// weight's are zero. float32 becomes TF32, rounded to nearest, or for tf32x3 a high and a low part.
#pragma once

#include "pack/params.h"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/tensor_copy.cuh"
#include "wgmma_sm90a/traits.cuh"

namespace convt::pack {

// A matrix product leaves columns 8 * j + 2 * q and the next of them in thread q of four. With their channels in this
// order the pairs of `interleaved` neighbouring blocks j are neighbouring channels.
__device__ __forceinline__ int32_t channel_of_column(int32_t column, int32_t interleaved) {
  const int32_t block = column / 8 % interleaved, quad = column % 8 / 2;
  return column / (8 * interleaved) * (8 * interleaved) + (quad * interleaved + block) * 2 + column % 2;
}

// Which of a tap's vectors one is.
__device__ __forceinline__ int32_t place_of_vector(const Params& params, int32_t plane, int32_t column) {
  if (!params.rows) return plane * params.block_n + column;
  const int32_t planes = params.k_steps * 2;
  return column * planes + ptx::tensor_swizzle(16 * planes, column, plane);
}

// The reverse.
__device__ __forceinline__ int32_t column_of_channel(int32_t channel, int32_t interleaved) {
  const int32_t of_quad = channel % (2 * interleaved), quad = channel / (2 * interleaved) % 4;
  return channel / (8 * interleaved) * (8 * interleaved) + of_quad / 2 * 8 + quad * 2 + channel % 2;
}

// Where a tap lies, and where in its H phase's part of a channel tile it is packed.
struct Tap {
  int64_t from;  // elements
  int64_t to;    // bytes from the channel tile's begin, of the first stage
  int32_t stage_bytes;  // of its H phase
};

__device__ __forceinline__ Tap find_tap(const Params& params, int32_t tap) {
  int32_t phase_h = 0;
  while (phase_h + 1 < params.program.phases_h && tap >= params.program.taps_before[phase_h + 1]) ++phase_h;
  const int32_t phase_tap = tap - params.program.taps_before[phase_h];
  // The run that holds the tap: the last one, of this H phase, that begins at or before it and is not empty.
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

// 16 bytes of a tap's planes, and for tf32x3 of their low parts, which lie behind all `vectors` of the tap.
template <typename Traits>
__device__ __forceinline__ void store_channels(char* g_tap, int32_t vector, int32_t vectors,
                                               const typename Traits::Element (&r)[Traits::kChannels]) {
  if constexpr (Traits::kFloat32) {
    float high[4], low[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      high[c] = ptx::round_tf32(r[c]);
      low[c] = wgmma_sm90a::low_part(r[c], high[c]);
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

// A block packs one tap of one stage of one channel tile: 16-byte vectors, neighbouring threads neighbouring channels.
template <typename Traits>
__device__ __forceinline__ void pack_tap(const Params& params, int32_t number) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kChannels;
  const Tap tap = find_tap(params, number % params.program.total_taps);
  number /= params.program.total_taps;
  const int32_t chunk = number % params.num_chunks;
  number /= params.num_chunks;
  const int32_t channel_tile = number % params.channel_tiles;
  const int32_t group = number / params.channel_tiles;
  const auto* g_tap = static_cast<const Element*>(params.w) + group * params.group_stride + tap.from;
  char* g_packed = static_cast<char*>(params.packed) +
                   (int64_t{group} * params.channel_tiles + channel_tile) * params.packed_tile_step + tap.to +
                   int64_t{chunk} * tap.stage_bytes;
  const int32_t planes = params.k_steps * 2, vectors = planes * params.block_n;
  if (params.k_vectors) {
    // Neighbouring threads read neighbours of memory, and all of a thread's are on their way at once.
    constexpr int kBatch = 4;
    for (int32_t first = threadIdx.x; first < vectors; first += kBatch * kPackThreads) {
      Element r[kBatch][kChannels];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int32_t vector = first + i * kPackThreads, column = vector / planes;
        const int32_t n = channel_tile * params.block_n + channel_of_column(column, params.interleaved);
        const int32_t k = (chunk * planes + vector % planes) * kChannels;
        const bool exists = vector < vectors && n < params.n_channels && k < params.k_channels;
        const uint4 words = exists ? __ldg(reinterpret_cast<const uint4*>(g_tap + k + n * params.n_stride)) : uint4{};
        memcpy(r[i], &words, 16);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int32_t vector = first + i * kPackThreads;
        if (vector >= vectors) continue;
        const int32_t place = place_of_vector(params, vector % planes, vector / planes);
        store_channels<Traits>(g_packed, place, vectors, r[i]);
      }
    }
    return;
  }
  if (params.n_vectors) {
    // As many channels of K, 16 bytes of result channels each, are as many vectors.
    for (int32_t item = threadIdx.x; item < vectors / kChannels; item += kPackThreads) {
      const int32_t plane = item % planes, first = item / planes * kChannels;
      const int32_t n = channel_tile * params.block_n + first, k = (chunk * planes + plane) * kChannels;
      Element r[kChannels][kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const bool exists = n < params.n_channels && k + c < params.k_channels;
        const auto* g = reinterpret_cast<const uint4*>(g_tap + (k + c) * params.k_stride + n);
        const uint4 words = exists ? __ldg(g) : uint4{};
        memcpy(r[c], &words, 16);
      }
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        Element of_column[kChannels];
#pragma unroll
        for (int c = 0; c < kChannels; ++c) of_column[c] = r[c][i];
        const int32_t column = column_of_channel(first + i, params.interleaved);
        store_channels<Traits>(g_packed, place_of_vector(params, plane, column), vectors, of_column);
      }
    }
    return;
  }
  for (int32_t vector = threadIdx.x; vector < vectors; vector += kPackThreads) {
    const int32_t plane = vector / params.block_n, column = vector % params.block_n;
    const int32_t n = channel_tile * params.block_n + channel_of_column(column, params.interleaved);
    const int32_t k = (chunk * planes + plane) * kChannels;
    Element r[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      r[c] = n < params.n_channels && k + c < params.k_channels ? g_tap[(k + c) * params.k_stride + n * params.n_stride]
                                                                : wgmma_sm90a::to_element<Element>(0.0f);
    }
    store_channels<Traits>(g_packed, place_of_vector(params, plane, column), vectors, r);
  }
}

// Where a block of kPackColumns columns and the channels of a step of K begins.
struct Corner {
  int32_t column, step, chunk;  // of the channel tile, of the stage, of all
  int32_t columns, channels;    // from there on that exist
  int64_t from;                 // elements
  int64_t to;                   // bytes: of the channel tile
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

// The weights of a block: kPackColumns columns, the channels of a step of K, some taps. In shared memory each
// column begins in another bank, however they lie in memory.
template <typename Traits>
struct Block {
  static constexpr int kChannels = 2 * Traits::kChannels;
  static constexpr int kItems = kPackColumns * kChannels;  // of a tap
  static constexpr int kElements = kItems * (kPackTaps + 1);
  static constexpr int kBatch = 8;  // of a thread, on their way from memory
  int32_t taps;
  bool columns_first;  // these are neighbours in memory, more than channels of K are

  __device__ __forceinline__ int32_t place(int32_t column, int32_t channel, int32_t tap) const {
    return columns_first ? (channel * kPackColumns + column) * (taps | 1) + tap
                         : column * (kChannels * taps + 1) + channel * taps + tap;
  }
};

// A block's weights of a 3 x 3 kernel whose taps lie together in memory, 16 bytes at a time. Taps stay in memory's
// order.
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

// The same for many taps, which a block of their own would read 4 bytes a sector of: memory is read in its own order,
// taps first, and written in the packed one.
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
    const int32_t threads = kPackThreads >> params.taps_log2;  // of each tap
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
        r[i] = exists ? __ldg(g_first + n * params.n_stride + k * params.k_stride)
                      : wgmma_sm90a::to_element<Element>(0.0f);
      }
#pragma unroll
      for (int i = 0; i < Block::kBatch; ++i) {
        if (place[i] >= 0) s_weights[place[i]] = r[i];
      }
    }
  }
  __syncthreads();

  char* g_tile = static_cast<char*>(params.packed) + corner.to;
  const int32_t vectors = params.k_steps * 2 * params.block_n;  // of a tap
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

// In units of 16 bytes: of a column's channel, and from one column to the next, which begin in different banks.
template <typename Traits>
struct WholeTaps {
  static constexpr int kVectors = kPackTaps * sizeof(typename Traits::Element) / 16;
  static constexpr int kStep = kVectors + 1;
};

// The same for 4 x 4 kernels whose taps lie together in memory, 16 bytes at a time: what a block does is instructions.
template <typename Traits>
__device__ __forceinline__ void pack_whole_taps(const Params& params, int32_t number, Tap* s_taps, uint4* s_weights) {
  using Element = typename Traits::Element;
  constexpr int kChannels = 2 * Traits::kChannels;
  constexpr int kVectors = WholeTaps<Traits>::kVectors, kStep = WholeTaps<Traits>::kStep;
  const Corner corner = corner_of<Traits>(params, number);
  const bool columns_first = params.n_stride < params.k_stride;
  const auto thread = static_cast<int32_t>(threadIdx.x);

  const Element* g_first = static_cast<const Element*>(params.w) + corner.from;
  constexpr int kOfThread = kPackColumns * kChannels * kVectors / kPackThreads;
  uint4 r[kOfThread];
  int32_t place[kOfThread];
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int32_t item = thread + i * kPackThreads, pair = item / kVectors;
    const int32_t n = columns_first ? pair % kPackColumns : pair / kChannels;
    const int32_t k = columns_first ? pair / kPackColumns : pair % kChannels;
    place[i] = (k * kPackColumns + n) * kStep + item % kVectors;
    r[i] = uint4{0, 0, 0, 0};
    if (n < corner.columns && k < corner.channels) {
      r[i] =
          __ldg(reinterpret_cast<const uint4*>(g_first + n * params.n_stride + k * params.k_stride) + item % kVectors);
    }
  }
  if (thread < kPackTaps) {
    const Tap tap = find_tap(params, thread);
    s_taps[tap.from] = tap;
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) s_weights[place[i]] = r[i];
  __syncthreads();

  char* g_tile = static_cast<char*>(params.packed) + corner.to;
  const int32_t vectors = params.k_steps * 2 * params.block_n;  // of a tap
  // A thread writes four taps of a column and plane.
  static_assert(kPackThreads == kPackColumns * 2 * kPackTaps / 4);
  const int32_t column = thread % kPackColumns, plane = thread / kPackColumns % 2;
  const int32_t first_tap = thread / kPackColumns / 2 * 4;
  const int32_t n = channel_of_column(corner.column + column, params.interleaved) - corner.column;
  const int32_t vector = place_of_vector(params, corner.step * 2 + plane, corner.column + column);
  Element taps[Traits::kChannels][4];
#pragma unroll
  for (int c = 0; c < Traits::kChannels; ++c) {
    const auto* s_column =
        reinterpret_cast<const Element*>(s_weights + ((plane * Traits::kChannels + c) * kPackColumns + n) * kStep);
    memcpy(taps[c], __builtin_assume_aligned(s_column + first_tap, sizeof(taps[c])), sizeof(taps[c]));
  }
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const Tap& tap = s_taps[first_tap + t];
    Element channels[Traits::kChannels];
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) channels[c] = taps[c][t];
    store_channels<Traits>(g_tile + tap.to + int64_t{corner.chunk} * tap.stage_bytes, vector, vectors, channels);
  }
}

#endif

// kPackThreads threads.
template <typename Traits>
__device__ __forceinline__ void pack_taps(const Params& params, int32_t number) {
#ifdef CONVT_HAS_WGMMA
  constexpr int kChannels = 2 * Traits::kChannels;
  constexpr int kBytes = Block<Traits>::kElements * static_cast<int>(sizeof(typename Traits::Element));
  constexpr int kOfWholeTaps = kPackColumns * kChannels * WholeTaps<Traits>::kStep;
  __shared__ Tap s_taps[kPackTaps];
  __shared__ uint4 s_bytes[kBytes > 16 * kOfWholeTaps ? (kBytes + 15) / 16 : kOfWholeTaps];
  if (params.whole_taps) {
    pack_whole_taps<Traits>(params, number, s_taps, s_bytes);
  } else if (params.by_blocks) {
    pack_block<Traits>(params, number, s_taps, s_bytes);
  } else {
    pack_tap<Traits>(params, number);
  }
#endif
}

template <typename Traits>
__global__ void pack_weights(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA  // launched where its reader runs; older targets cannot round to TF32
  ptx::let_next_kernel_begin();
  pack_taps<Traits>(params, static_cast<int32_t>(blockIdx.x));
#endif
}

}  // namespace convt::pack
