// Stores a warp's accumulators through shared memory, so that lanes store contiguous results (positions in NCHW,
// channels in channels_last) for any stride of phases and any alignment.
#pragma once

#include <cstdint>

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "portable/source.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// Element offset of a position's results from the first result; -1 if the position does not exist.
__device__ __forceinline__ int64_t result_of_row(const Params& params, const Tile& tile, int32_t row) {
  const Position position = position_of_row(params, row);
  const int32_t h = position.h * params.h.stride + tile.phase_h, w = position.w * params.w.stride + tile.phase_w;
  if (!position.exists || h >= params.h.out || w >= params.w.out) return -1;
  return params.first_result + position.image * params.result_stride[0] + h * params.result_stride[2] +
         w * params.result_stride[3];
}

// Adds the bias to a few results of one lane and stores them. values[i] belongs to channel[i] of the group and to the
// position at offset[i], or -1.
template <typename Element, int kCount>
__device__ __forceinline__ void finish_and_store(const Params& params, const Tile& tile, float (&values)[kCount],
                                                 const int32_t (&channel)[kCount], const int64_t (&offset)[kCount]) {
  epilogue::Places<kCount> places;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    places.channel[i] = tile.group * params.n_channels + channel[i];
    places.left[i] = offset[i] >= 0 && channel[i] < params.n_channels ? 1 : 0;
    places.offset[i] = offset[i] + places.channel[i] * params.result_stride[1];
  }
  if (params.steps.num_steps > 0) {
    epilogue::run_steps<Element, kCount, 1, true>(params.steps, places, false, values);
  }
  auto* g_result = static_cast<Element*>(params.result);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (places.left[i] > 0) g_result[places.offset[i]] = element::to_element<Element>(values[i]);
  }
}

// `row` and `column`: the warp's first row and column in the tile. `s_staged` is a private buffer of the warp.
template <typename Element, int kRows, int kColumns>
__device__ __forceinline__ void store_sums(const Params& params, const Tile& tile, int32_t row, int32_t column,
                                           const Accumulators<kRows, kColumns>& sums, float* s_staged) {
  constexpr int kCount = 4;  // results per lane and store
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t pitch = portable_staged_pitch(kColumns, params.channels_last);
  const int32_t row_pitch = params.channels_last ? pitch : 1, column_pitch = params.channels_last ? 1 : pitch;
  float bias[kColumns / 8][2];  // bias of the lane's columns
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) {
    const int32_t channel = tile.first_column + column + i / 2 * 8 + lane % 4 * 2 + i % 2;
    bias[i / 2][i % 2] = epilogue::bias_of<Element>(params, tile.group, params.n_channels, channel);
  }
#pragma unroll
  for (int slice = 0; slice < kRows / kPortableStoredRows; ++slice) {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t staged_row = 16 * m + lane / 4 + i / 2 * 8, staged_column = 8 * n + lane % 4 * 2 + i % 2;
          s_staged[staged_row * row_pitch + staged_column * column_pitch] =
              epilogue::finish(sums[2 * slice + m][n][i], bias[n][i % 2]);
        }
      }
    }
    __syncwarp();
    const int64_t own = result_of_row(params, tile, tile.first_row + row + slice * kPortableStoredRows + lane);
    float values[kCount];
    int32_t channel[kCount];
    int64_t offset[kCount];
    if (params.channels_last) {
      for (int32_t first = 0; first < kPortableStoredRows; first += kCount) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) offset[i] = __shfl_sync(0xffffffffu, own, first + i);
#pragma unroll
        for (int32_t c = 0; c < kColumns; c += 32) {
#pragma unroll
          for (int i = 0; i < kCount; ++i) {
            channel[i] = tile.first_column + column + c + lane;
            values[i] = s_staged[(first + i) * pitch + c + lane];
          }
          finish_and_store<Element>(params, tile, values, channel, offset);
        }
      }
    } else {
      for (int32_t c = 0; c < kColumns; c += kCount) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          channel[i] = tile.first_column + column + c + i;
          offset[i] = own;
          values[i] = s_staged[(c + i) * pitch + lane];
        }
        finish_and_store<Element>(params, tile, values, channel, offset);
      }
    }
  }
}

#endif

}  // namespace convt::portable
