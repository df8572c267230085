// Depthwise layers in channels_last: lanes along the channels. A thread processes a few neighbouring columns of
// positions from top to bottom. Its registers contain the source rows that it still needs and those in flight. Each
// source element is thus read from device memory once (neighbouring threads' columns overlap in L1), and every load and
// store of a warp covers whole lines. Weights are in shared memory, because registers are better used for rows in
// flight. All three directions share this file.
#pragma once

#include "depthwise/channels_last_layout.h"
#include "element/vector.cuh"
#include "ptx/shared.cuh"

namespace convt::depthwise {

// kRowsAhead: rows of the source in flight.
template <DataType kDataTypeValue, int kKernelValue, int kStrideValue, int kVectorValue, int kPositionsValue,
          int kRowsAheadValue>
struct ChannelsLastTraits {
  static constexpr DataType kDataType = kDataTypeValue;
  using Element = typename element::ElementOf<kDataType>::type;
  static constexpr int kKernel = kKernelValue;
  static constexpr int kStride = kStrideValue;
  static constexpr int kVector = kVectorValue;  // channels per thread
  static constexpr int kPositions = kPositionsValue;  // columns per thread
  static constexpr int kRowsAhead = kRowsAheadValue;
  // Maximum taps per phase and axis, which is also the maximum number of result rows that read a row in the gradient.
  static constexpr int kTaps = (kKernel + kStride - 1) / kStride;
  using Channels = element::Vector<Element, kVector>;
  // Variant for misaligned channels: one channel per thread.
  using Single = ChannelsLastTraits<kDataType, kKernel, kStride, 1, kPositions, kRowsAhead>;
};

// Positions of a thread: columns from `column` on, rows row .. row_end - 1 of one image, channels from `channel` on.
struct ChannelsLastPlace {
  int32_t image;
  int32_t channel_block;
  int32_t lane;
  int32_t channel;
  int32_t column;
  int32_t row;
  int32_t row_end;
  bool exists;

  __device__ __forceinline__ ChannelsLastPlace(const ChannelsLastParams& params, int32_t positions) {
    int32_t index = static_cast<int32_t>(blockIdx.x);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t column_block = index % params.column_blocks;
    index /= params.column_blocks;
    channel_block = index % params.channel_blocks;
    index /= params.channel_blocks;
    row = params.positions_h.first + index % params.chunks * params.rows;
    row_end = min(row + params.rows, params.positions_h.first + params.positions_h.count);
    image = index / params.chunks;
    lane = thread % params.lanes;
    const int32_t number = thread / params.lanes;
    channel = (channel_block * params.lanes + lane) * params.vector;
    column = params.positions_w.first + (column_block * params.columns + number) * positions;
    exists = number < params.columns && column < params.positions_w.first + params.positions_w.count &&
             channel < params.channels;
  }
};

// Weights of a CTA's channels as float32 in shared memory, [tap][lane][kVector].
template <typename Traits>
struct ChannelsLastWeights {
  static constexpr int kVector = Traits::kVector;
  uint32_t s_lane;  // address of the thread's lane in tap 0
  int32_t tap_bytes;

  // Called by all threads of the CTA.
  __device__ __forceinline__ ChannelsLastWeights(const ChannelsLastParams& params, const ChannelsLastPlace& place) {
    extern __shared__ float4 s_weights[];
    auto* s_values = reinterpret_cast<float*>(s_weights);
    const auto* g_weight = static_cast<const typename Traits::Element*>(params.weight);
    constexpr int kTaps = Traits::kKernel * Traits::kKernel;
    for (int32_t index = threadIdx.x; index < kTaps * params.lanes; index += kChannelsLastThreads) {
      const int32_t tap = index / params.lanes, lane = index - tap * params.lanes;
      const int32_t channel = (place.channel_block * params.lanes + lane) * kVector;
      const int64_t offset =
          tap / Traits::kKernel * params.weight_stride[2] + tap % Traits::kKernel * params.weight_stride[3];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (channel + i >= params.channels) break;
        s_values[index * kVector + i] =
            element::to_accumulator(g_weight[(channel + i) * params.weight_stride[0] + offset]);
      }
    }
    s_lane = ptx::shared_address(s_values + place.lane * kVector);
    tap_bytes = params.lanes * kVector * static_cast<int32_t>(sizeof(float));
    __syncthreads();  // all weights are loaded
  }

  __device__ __forceinline__ void load(int tap, float (&r_weight)[kVector]) const {
    static_assert(kVector == 1 || kVector == 4);
    const uint32_t s_tap = s_lane + tap * tap_bytes;
    if constexpr (kVector == 1) {
      r_weight[0] = __uint_as_float(ptx::load_shared(s_tap));
    } else {
      ptx::load_shared<0>(r_weight, s_tap);
    }
  }
};

// Address of a thread's first channel at (row, column), which may be outside the tensor.
template <typename Element>
__device__ __forceinline__ Element* channels_last_place(const void* tensor, const int64_t (&stride)[4],
                                                        const ChannelsLastPlace& place, int32_t row, int32_t column) {
  return static_cast<Element*>(const_cast<void*>(tensor)) + place.image * stride[0] + place.channel * stride[1] +
         row * stride[2] + column * stride[3];
}

// Streams rows of an operand, kColumns wide, through a thread's registers. Instead of a nonexistent row it loads the
// nearest existing one: a load in a branch would make the compiler wait for all loads at once. Nonexistent columns are
// never loaded. kWhole: all columns exist and loads are unconditional. A predicated load must preserve its register's
// old value, so it cannot issue before that value's last use.
template <typename Traits, int kColumns, bool kWhole>
struct ChannelsLastRows {
  using Element = typename Traits::Element;
  using Row = typename Traits::Channels[kColumns];

  const Element* g_row;  // first column of the next row
  int64_t row_stride;
  int64_t column_stride;
  int32_t next;
  int32_t last;  // last row that exists and is needed
  uint32_t exist;  // bit mask of existing columns

  __device__ __forceinline__ ChannelsLastRows(const void* tensor, const int64_t (&stride)[4],
                                              const ChannelsLastPlace& place, int32_t first_row, int32_t row_end,
                                              int32_t first_column, int32_t num_columns)
      : row_stride(stride[2]), column_stride(stride[3]), next(first_row), last(max(row_end - 1, 0)), exist(0) {
    g_row = channels_last_place<const Element>(tensor, stride, place, min(max(first_row, 0), last), first_column);
    if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        exist |= static_cast<uint32_t>(first_column + i >= 0 && first_column + i < num_columns) << i;
      }
    }
  }

  __device__ __forceinline__ bool has(int column) const { return kWhole || (exist >> column & 1) != 0; }

  __device__ __forceinline__ void load(Row& r_row) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (has(i)) r_row[i].load(g_row + i * column_stride);
    }
    ++next;
    g_row += next > 0 && next <= last ? row_stride : 0;
  }
};

}  // namespace convt::depthwise
