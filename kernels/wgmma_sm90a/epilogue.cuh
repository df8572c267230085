// Accumulators -> result. NCHW: 8 channels at a time go through shared memory, where the W phases of a row interleave,
// and leave as runs of neighbouring columns. channels_last: straight from registers, where pairs of channels are
// neighbours. What does not change from channel to channel is worked out once per tile.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "wgmma_sm90a/mainloop.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int kPassChannels = kWgmmaPassChannels;  // staged at a time

// A position of a tile.
struct Place {
  int32_t image, row, column;
};

// Position `m` (0 .. 63) of a block, by its place in the operand plane; false in the halo, which blocks may reach into.
__device__ __forceinline__ bool place_of(const Params& params, int32_t block, int32_t m, Place* place) {
  const int32_t position = params.block_origin[block] + (m >> 3) * params.block_row_step + (m & 7);
  place->image = params.by_rows(params.by_pitch(position, &place->column), &place->row);
  return place->column < params.tile_w && place->row < params.tile_h && place->image < params.tile_n;
}

// Which of a tile's results exist, and where they lie. launch/ has made sure that 32 bits hold a tile's offsets.
class ResultTile {
 public:
  __device__ __forceinline__ ResultTile(const Params& params, const Tile& tile)
      : params_(params),
        images_left_(params.batch - tile.n_begin),
        rows_left_(params.result_h - tile.p_h_begin * params.result_step_h - tile.phase_h),
        columns_left_(params.result_w - tile.p_w_begin * params.result_step_w - tile.phase_w_begin),
        phases_left_(params.program.phases_w - tile.phase_w_begin) {}

  __device__ __forceinline__ bool exists(const Place& place, int32_t phase) const {
    return place.image < images_left_ && place.row * params_.result_step_h < rows_left_ &&
           place.column * params_.result_step_w + phase < columns_left_ && phase < phases_left_;
  }

  // Elements from the tile's first position.
  __device__ __forceinline__ int32_t offset(const Place& place, int32_t phase) const {
    return place.image * static_cast<int32_t>(params_.result_stride[0]) +
           place.row * params_.result_step_h * static_cast<int32_t>(params_.result_stride[2]) +
           (place.column * params_.result_step_w + phase) * static_cast<int32_t>(params_.result_stride[3]);
  }

 private:
  const Params& params_;
  int32_t images_left_, rows_left_, columns_left_, phases_left_;
};

// The tile's first position in channel `channel` of its group.
template <typename Traits>
__device__ __forceinline__ typename Traits::Element* result_of(const Params& params, const Tile& tile,
                                                               int32_t channel) {
  return static_cast<typename Traits::Element*>(params.result) + tile.n_begin * params.result_stride[0] +
         (int64_t{tile.group} * params.n_channels + channel) * params.result_stride[1] +
         (int64_t{tile.p_h_begin} * params.result_step_h + tile.phase_h) * params.result_stride[2] +
         (int64_t{tile.p_w_begin} * params.result_step_w + tile.phase_w_begin) * params.result_stride[3];
}

template <typename Traits>
__device__ __forceinline__ float bias_of(const Params& params, const Tile& tile, int32_t channel) {
  return epilogue::bias_of<typename Traits::Element>(params, tile.group, params.n_channels, channel);
}

// This thread's position in a block: rows of the accumulator 8 apart.
__device__ __forceinline__ int32_t position_of_thread(int half) {
  return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
}

// Accumulators of 8 channels -> shared memory: [channel][position][W phase]. `staged` are floats from a channel's
// first, or -1.
template <typename Traits, int kPhases, int kBlocks>
__device__ __forceinline__ void stage_channels(const Accumulators<Traits>& acc, int pass,
                                               const int32_t (&staged)[kBlocks][2], const float (&bias)[2],
                                               int32_t staged_stride, float* s_staged) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t at = staged[block][i / 2];
      if (at < 0) continue;
      float* s_place = s_staged + (threadIdx.x % 4 * 2 + i % 2) * staged_stride + at;
      float values[kPhases];
#pragma unroll
      for (int phase = 0; phase < kPhases; ++phase) {
        values[phase] = epilogue::finish(acc[phase * kBlocks + block][pass * 4 + i], bias[i % 2]);
      }
      epilogue::store_vector(s_place, values);
    }
  }
}

// Staged channels -> rows of the result. Thread t stores elements t, t + 128, ... of every channel,
// kWidth at a time; `offset` is -1 for what does not exist.
template <typename Traits, int kWidth, int kUnits>
__device__ __forceinline__ void store_rows(const Params& params, typename Traits::Element* g_channel, int32_t channels,
                                           const int32_t (&offset)[kUnits], const float* s_mine) {
  // All reads of shared memory before the first store, so that none waits for another.
  float r[kPassChannels][kUnits][kWidth];
#pragma unroll
  for (int c = 0; c < kPassChannels; ++c) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const float* s_unit = s_mine + c * params.staged_stride + kConsumerThreads * kWidth * i;
      if (offset[i] < 0) continue;
      memcpy(r[c][i], __builtin_assume_aligned(s_unit, sizeof(r[c][i])), sizeof(r[c][i]));
    }
  }
#pragma unroll
  for (int c = 0; c < kPassChannels; ++c, g_channel += params.result_stride[1]) {
    if (c >= channels) break;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (offset[i] >= 0) epilogue::store_neighbours(g_channel + offset[i], r[c][i], kWidth, kWidth, 1);
    }
  }
}

// Finishes and stores rows with steps, one channel after the other.
template <typename Traits, int kWidth, int kUnits>
__device__ __forceinline__ void finish_rows(const Params& params, typename Traits::Element* g_channel,
                                            int32_t first_channel, int32_t channels, const int32_t (&offset)[kUnits],
                                            const float* s_mine) {
  using Element = typename Traits::Element;
  channels = min(channels, kPassChannels);
#pragma unroll 1
  for (int32_t c = 0; c < channels; ++c, g_channel += params.result_stride[1], s_mine += params.staged_stride) {
    float values[kUnits * kWidth];
    epilogue::Places<kUnits> places;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      places.channel[i] = first_channel + c;
      places.left[i] = offset[i] >= 0 ? kWidth : 0;
      places.offset[i] = g_channel + offset[i] - static_cast<Element*>(params.result);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        values[i * kWidth + k] = offset[i] >= 0 ? s_mine[kConsumerThreads * kWidth * i + k] : 0.0f;
      }
    }
    epilogue::run_steps<Element, kUnits, kWidth, false>(params.steps, places, true, values);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      float of_unit[kWidth];
      memcpy(of_unit, values + i * kWidth, sizeof(of_unit));
      if (offset[i] >= 0) epilogue::store_neighbours(g_channel + offset[i], of_unit, kWidth, kWidth, 1);
    }
  }
}

// kWidth is 2 where pairs of elements are neighbours in the result.
template <typename Traits, int kPhases, int kBlocks, int kWidth, bool kSteps>
__device__ __forceinline__ void store_staged(const Accumulators<Traits>& acc, const Params& params, const Tile& tile,
                                             float* s_staged) {
  constexpr int kUnits = (kBlocks * kPhases + 2 * kWidth - 1) / (2 * kWidth);  // 64 positions a block, 128 threads
  int32_t staged[kBlocks][2];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Place place;
      const bool owned = place_of(params, block, position_of_thread(half), &place);
      const int32_t position = (place.image * params.tile_h + place.row) * params.tile_w + place.column;
      staged[block][half] = owned ? position * kPhases : -1;
    }
  }
  const ResultTile result(params, tile);
  int32_t offset[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int32_t element = (threadIdx.x + kConsumerThreads * i) * kWidth;
    const int32_t position = element / kPhases, phase = element % kPhases;
    Place place;
    place.image = params.by_tile_h(params.by_tile_w(position, &place.column), &place.row);
    offset[i] = position < params.staged_positions && result.exists(place, phase) ? result.offset(place, phase) : -1;
  }

  const int32_t tile_channel = tile.channel_tile * Traits::kN;
  auto* g_channel = result_of<Traits>(params, tile, tile_channel);
  const float* s_mine = s_staged + threadIdx.x * kWidth;
#pragma unroll
  for (int pass = 0; pass < Traits::kN / kPassChannels; ++pass) {
    const int32_t first_channel = tile_channel + pass * kPassChannels;
    if (first_channel >= params.n_channels) break;
    const int32_t my_channel = first_channel + threadIdx.x % 4 * 2;
    const float bias[2] = {bias_of<Traits>(params, tile, my_channel), bias_of<Traits>(params, tile, my_channel + 1)};
    ptx::named_barrier(kStagingBarrier, kConsumerThreads);  // everybody has read the pass before
    stage_channels<Traits, kPhases, kBlocks>(acc, pass, staged, bias, params.staged_stride, s_staged);
    ptx::named_barrier(kStagingBarrier, kConsumerThreads);  // the pass is staged
    if constexpr (kSteps) {
      finish_rows<Traits, kWidth, kUnits>(params, g_channel, tile.group * params.n_channels + first_channel,
                                          params.n_channels - first_channel, offset, s_mine);
    } else {
      store_rows<Traits, kWidth, kUnits>(params, g_channel, params.n_channels - first_channel, offset, s_mine);
    }
    g_channel += kPassChannels * params.result_stride[1];
  }
}

// channels_last: the 4 lanes of a position hold 8 neighbouring channels.
template <typename Traits, int kPhases, int kBlocks>
__device__ __forceinline__ void store_channels_last(const Accumulators<Traits>& acc, const Params& params,
                                                    const Tile& tile) {
  using Element = typename Traits::Element;
  const ResultTile result(params, tile);
  int32_t offset[kBlocks][2];  // of W phase 0
  uint32_t exists = 0;         // a bit for each block, half and phase
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Place place;
      const bool owned = place_of(params, block, position_of_thread(half), &place);
      offset[block][half] = result.offset(place, 0);
#pragma unroll
      for (int phase = 0; phase < kPhases; ++phase) {
        if (owned && result.exists(place, phase)) exists |= 1u << ((block * 2 + half) * kPhases + phase);
      }
    }
  }
  const auto phase_step = static_cast<int32_t>(params.result_stride[3]);
  const int32_t first_channel = tile.channel_tile * Traits::kN + threadIdx.x % 4 * 2;
  Element* g_channel = result_of<Traits>(params, tile, first_channel);
#pragma unroll
  for (int j = 0; j < Traits::kN / 8; ++j, g_channel += 8) {
    const int32_t channel = first_channel + 8 * j;
    if (channel >= params.n_channels) break;
    const float bias[2] = {bias_of<Traits>(params, tile, channel), bias_of<Traits>(params, tile, channel + 1)};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int phase = 0; phase < kPhases; ++phase) {
          if (!(exists >> ((block * 2 + half) * kPhases + phase) & 1)) continue;
          const float* r = &acc[phase * kBlocks + block][4 * j + 2 * half];
          const Element values[2] = {to_element<Element>(epilogue::finish(r[0], bias[0])),
                                     to_element<Element>(epilogue::finish(r[1], bias[1]))};
          Element* g_place = g_channel + offset[block][half] + phase * phase_step;
          if (params.result_pairs) {
            epilogue::store_vector(g_place, values);
          } else {
            g_place[0] = values[0];
            if (channel + 1 < params.n_channels) g_place[1] = values[1];
          }
        }
      }
    }
  }
}

#endif

}  // namespace convt::wgmma_sm90a
