// Accumulators -> bias -> result. The weights' channels are permuted so that a thread holds 16 contiguous bytes, and
// four threads whole sectors of channels_last. Results are stored from registers, or through shared memory by TMA, so
// that the next tile's products need not wait. In NCHW eight threads hold eight positions of a channel.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "nhwc_sm90a/tile.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

// Element offset of the results of a tile's group at a row and column; -1 outside the result.
__device__ __forceinline__ int64_t result_at(const Params& params, const Tile& tile, int32_t image, int32_t row,
                                             int32_t column) {
  if (column >= params.result_w || row >= params.result_h || image >= params.batch) return -1;
  return image * params.result_stride[0] + int64_t{tile.group} * params.n_channels * params.result_stride[1] +
         row * params.result_stride[2] + column * params.result_stride[3];
}

// Element offset of the results of a tile's position; -1 outside the result.
__device__ __forceinline__ int64_t result_of_position(const Params& params, const Tile& tile, int32_t number) {
  Position position;
  const bool exists = position_of_tile(params, number, &position);
  const int32_t column = (tile.column + position.column) * params.scale_w + tile.phase_w;
  const int32_t row = (tile.row + position.row) * params.scale_h + tile.phase_h;
  return exists ? result_at(params, tile, tile.image + position.image, row, column) : -1;
}

// Offsets of the results of a thread's positions.
template <typename Shape>
struct Offsets {
  int64_t of[Shape::kBlocks][2];

  __device__ __forceinline__ Offsets(const Params& params, const Tile& tile, int32_t warp) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        of[block][h] = result_of_position(params, tile, positions_before<Shape>(warp, block) + lane / 4 + 8 * h);
      }
    }
  }
};

// Results of both positions of a block: kCount contiguous channels from `channel` on, from accumulators `first` on.
template <typename Shape, bool kSteps, int kCount>
__device__ __forceinline__ void finish_block(const Accumulators<Shape>& acc, const Params& params, int block, int first,
                                             int32_t group, int32_t channel, const float (&bias)[kCount],
                                             const Offsets<Shape>& offsets, float (&values)[2 * kCount]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      values[h * kCount + k] = epilogue::finish(acc.of(block, h, first + k), bias[k]);
    }
  }
  if constexpr (kSteps) {
    epilogue::Places<2> places;
    places.step = static_cast<int32_t>(params.result_stride[1]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      places.channel[h] = group * params.n_channels + channel;
      places.left[h] = offsets.of[block][h] >= 0 ? params.n_channels - channel : 0;
      places.offset[h] = offsets.of[block][h] + channel * params.result_stride[1];
    }
    epilogue::run_steps<typename Shape::Element, 2, kCount, true>(params.steps, places, params.unit >= kCount, values);
  }
}

template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_tile(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                           const ClusterSlice& share, int32_t warp) {
  using Element = typename Shape::Element;
  constexpr int kInterleaved = nhwc_interleaved(Shape::kElement);
  constexpr int kCount = 2 * kInterleaved;  // contiguous channels per thread
  const int32_t first = tile.channel_tile * Shape::kN + static_cast<int32_t>(threadIdx.x % 4) * kCount;
  const Offsets<Shape> offsets(params, tile, warp);
#pragma unroll
  for (int m = 0; m < Shape::kN / 8 / kInterleaved; ++m) {
    const int32_t channel = first + m * 4 * kCount;
    float bias[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      bias[k] = epilogue::bias_of<Element, kSteps>(params, tile.group, params.n_channels, channel + k);
    }
    if (channel >= params.n_channels || !share.has(m * kInterleaved)) continue;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
      float values[2 * kCount];
      finish_block<Shape, kSteps>(acc, params, block, m * kCount, tile.group, channel, bias, offsets, values);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (offsets.of[block][h] < 0) continue;
        float of_position[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) of_position[k] = values[h * kCount + k];
        Element* g_result = static_cast<Element*>(params.result) + offsets.of[block][h];
        epilogue::store_neighbours(g_result + channel * params.result_stride[1], of_position,
                                   params.n_channels - channel, params.unit, params.result_stride[1]);
      }
    }
  }
}

// The bias of tile channel threadIdx.x.
template <typename Shape>
__device__ __forceinline__ float bias_of_thread(const Params& params, const Tile& tile) {
  const auto number = static_cast<int32_t>(threadIdx.x);
  if (number >= Shape::kN) return 0;
  const int32_t channel = tile.channel_tile * Shape::kN + number;
  return epilogue::bias_of<typename Shape::Element>(params, tile.group, params.n_channels, channel);
}

// Writes the bias to shared memory. Other threads may read it after their next barrier.
template <typename Shape>
__device__ __forceinline__ void stage_bias(float bias, uint32_t s_bias) {
  if (threadIdx.x < Shape::kN) ptx::store_shared(s_bias + 4 * threadIdx.x, __float_as_uint(bias));
}
// Loads the bias of contiguous channels, counted from the tile's first.
template <int kCount>
__device__ __forceinline__ void load_bias(float (&bias)[kCount], uint32_t s_bias, int32_t channel) {
#pragma unroll
  for (int k = 0; k < kCount; k += 4) {
    float four[4];
    ptx::load_shared<0>(four, s_bias + 4 * (channel + k));
#pragma unroll
    for (int i = 0; i < 4; ++i) bias[k + i] = four[i];
  }
}

// Called by all consumer threads. `bias` is bias_of_thread(). `buffer` is the next buffer, carried from tile to tile.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void stage_tile(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                           int32_t warp, float bias, uint32_t s_staged, uint32_t s_bias,
                                           uint32_t* buffer) {
  using Element = typename Shape::Element;
  constexpr int kInterleaved = nhwc_interleaved(Shape::kElement);
  constexpr int kCount = 2 * kInterleaved;  // contiguous channels per thread
  constexpr int kOfRow = Shape::kStagedRowBytes / 64;  // 64-byte runs per row, four threads each
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t first = tile.channel_tile * Shape::kN + lane % 4 * kCount;
  const Offsets<Shape> offsets(params, tile, warp);  // unused without steps, and then not computed
  stage_bias<Shape>(bias, s_bias);
#pragma unroll
  for (int box = 0; box < Shape::kN * Shape::kElement / Shape::kStagedRowBytes; ++box) {
    const uint32_t s_buffer = s_staged + *buffer * Shape::kStagedBytes;
    *buffer ^= 1;
    if (threadIdx.x == 0) ptx::bulk_wait_read<kNhwcStagedBuffers - 1>();
    ptx::named_barrier(1, kConsumerThreads);  // the buffer's previous store has read it
#pragma unroll
    for (int run = 0; run < kOfRow; ++run) {
      const int m = box * kOfRow + run;
      float bias_of[kCount];
      load_bias(bias_of, s_bias, m * 4 * kCount + lane % 4 * kCount);
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        float values[2 * kCount];
        finish_block<Shape, kSteps>(acc, params, block, m * kCount, tile.group, first + m * 4 * kCount, bias_of,
                                    offsets, values);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int32_t row = positions_before<Shape>(warp, block) + lane / 4 + 8 * h;
          Element elements[kCount];
#pragma unroll
          for (int k = 0; k < kCount; ++k) elements[k] = element::to_element<Element>(values[h * kCount + k]);
          uint32_t words[4];
          memcpy(words, elements, sizeof(words));
          const uint32_t vector = ptx::tensor_swizzle(Shape::kStagedRowBytes, row, 4 * run + lane % 4);
          ptx::store_shared(s_buffer + row * Shape::kStagedRowBytes + vector * 16, words);
        }
      }
    }
    ptx::fence_proxy_async();
    ptx::named_barrier(1, kConsumerThreads);  // the whole box is written
    if (threadIdx.x == 0) {
      const int32_t channel = tile.channel_tile * Shape::kN + box * (Shape::kStagedRowBytes / Shape::kElement);
      const int32_t at[4] = {channel, tile.column, tile.row, tile.image};
      if (channel < params.n_channels) {
        ptx::tensor_store(&params.results[first_window(params, tile) % kNhwcMostStagedPhases], at, s_buffer);
      }
      ptx::bulk_commit();
    }
  }
}

#endif

}  // namespace convt::nhwc_sm90a
