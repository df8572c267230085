// Accumulators -> result. Accumulators are transposed through shared memory, so that stores cover runs of columns in
// NCHW and runs of channels in channels_last. A store from registers would cover 16 to 64 bytes of each of 8 channels.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "flat_sm90a/mainloop.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::flat_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int kStagingBarrier = 1;  // named barrier of the first warpgroup; the second uses the next

// Iterates over positions of the sequence and computes their coordinates in the result.
class Walk {
 public:
  __device__ __forceinline__ Walk(const Params& params, const Tile& tile, int32_t position)
      : params_(params), phase_h_(tile.phase_h) {
    image_ = params.by_image_rows(params.by_pitch(position, &column_), &row_);
    find_row();
  }

  __device__ __forceinline__ void advance(int32_t positions) {
    column_ += positions;
    if (column_ < params_.by_pitch.value) return;
    do {
      column_ -= params_.by_pitch.value;
      if (++row_ == params_.by_image_rows.value) {
        row_ = 0;
        ++image_;
      }
    } while (column_ >= params_.by_pitch.value);
    find_row();
  }

  __device__ __forceinline__ int32_t column() const { return column_; }
  // Element offset of the position's row in the result; negative if the row does not exist.
  __device__ __forceinline__ int64_t row_offset() const { return row_offset_; }

 private:
  __device__ __forceinline__ void find_row() {
    const int32_t h = row_ * params_.result_step_h + phase_h_;
    row_offset_ = image_ < params_.batch && h < params_.result_h
                      ? image_ * params_.result_stride[0] + h * params_.result_stride[2]
                      : -1;
  }

  const Params& params_;
  int32_t phase_h_;
  int32_t column_, row_, image_;
  int64_t row_offset_;
};

// NCHW. A warp stores 64 columns of 8 channels per pass, half of its 16 channels. Each lane stores 4 contiguous columns
// of one row, because the row pitch is a multiple of 4 result columns.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_columns(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                              int32_t first_channel, int32_t first_position, float* s_staged) {
  using Element = typename Shape::Traits::Element;
  constexpr int kPhases = Shape::kPhases, kPassPositions = kFlatPassColumns / kPhases;
  constexpr int kStride = kFlatPassColumns + (kPhases == 1 ? 8 : kPhases == 2 ? 16 : 20);  // no bank conflicts
  const auto lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x % 128) / 32;
  float* s_warp = s_staged + warp * 8 * kStride;
  float* s_mine = s_warp + lane / 4 * kStride + lane % 4 * 2 * kPhases;
  const float* s_quad = s_warp + lane / 16 * kStride + lane % 16 * 4;
  const int32_t channel = first_channel + warp * 16 + lane / 16;
  Element* g_channel = static_cast<Element*>(params.result) +
                       (int64_t{tile.group} * params.n_channels + channel) * params.result_stride[1];
  float bias[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    bias[i / 4][i % 4] = epilogue::bias_of<Element, kSteps>(params, tile.group, params.n_channels, channel + i * 2);
  Walk walk(params, tile, first_position + lane % 16 * 4 / kPhases);
#pragma unroll
  for (int pass = 0; pass < Shape::kPositions / kPassPositions; ++pass, walk.advance(kPassPositions)) {
    const int32_t column = walk.column() * kPhases + lane % 16 * 4 % kPhases;
    const int32_t left = walk.row_offset() < 0 ? 0 : params.result_w - column;
    Element* g = g_channel + walk.row_offset() + column * params.result_stride[3];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      __syncwarp();  // the previous columns have been read
#pragma unroll
      for (int j = 0; j < kPassPositions / 8; ++j) {
        float values[2 * kPhases];
#pragma unroll
        for (int i = 0; i < 2 * kPhases; ++i) {
          values[i] = acc.of(i % kPhases, pass * (kPassPositions / 8) + j, 2 * half + i / kPhases);
        }
        epilogue::store_vector(s_mine + 8 * j * kPhases, values);
      }
      __syncwarp();
      float values[4 * 4];  // 4 columns of every second channel
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 sum = *reinterpret_cast<const float4*>(s_quad + 2 * i * kStride);
        const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) values[4 * i + k] = epilogue::finish(sums[k], bias[half][i]);
      }
      if constexpr (kSteps) {
        epilogue::Places<4> places;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t of_run = channel + 8 * half + 2 * i;
          places.channel[i] = tile.group * params.n_channels + of_run;
          places.left[i] = of_run < params.n_channels ? left : 0;
          places.offset[i] = g + 2 * i * params.result_stride[1] - static_cast<Element*>(params.result);
        }
        places.step = static_cast<int32_t>(params.result_stride[3]);
        epilogue::run_steps<Element, 4, 4, false>(params.steps, places, params.unit >= 4, values);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i, g += 2 * params.result_stride[1]) {
        if (left <= 0 || channel + 8 * half + 2 * i >= params.n_channels) continue;
        const float of_channel[4] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
        epilogue::store_neighbours(g, of_channel, left, params.unit, params.result_stride[3]);
      }
    }
  }
}

// channels_last. A warpgroup stores kFlatPassPositions positions of 64 channels per pass.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_channels(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                               int32_t consumer, int32_t first_channel, int32_t first_position,
                                               float* s_staged) {
  using Element = typename Shape::Traits::Element;
  constexpr int kPhases = Shape::kPhases, kQuads = kFlatChannels / 4;
  constexpr int kPositionStep = 128 / kQuads;
  const auto thread = static_cast<int32_t>(threadIdx.x % 128);
  const int32_t barrier = kStagingBarrier + consumer;
  float* s_mine = s_staged + thread % 4 * 2 * kFlatStagedStride + thread / 32 * 16 + thread % 32 / 4;
  const int32_t channel = first_channel + thread % kQuads * 4;
  float bias[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    bias[i] = epilogue::bias_of<Element, kSteps>(params, tile.group, params.n_channels, channel + i);
  Walk walk(params, tile, first_position + thread / kQuads);
#pragma unroll
  for (int pass = 0; pass < Shape::kPositions / kFlatPassPositions; ++pass) {
    int64_t offset[kFlatPassPositions / kPositionStep];
    int32_t column[kFlatPassPositions / kPositionStep];
#pragma unroll
    for (int i = 0; i < kFlatPassPositions / kPositionStep; ++i, walk.advance(kPositionStep)) {
      offset[i] = walk.row_offset();
      column[i] = walk.column() * kPhases;
    }
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) {
      ptx::named_barrier(barrier, 128);  // all threads have read the previous pass
#pragma unroll
      for (int j = 0; j < kFlatPassPositions / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s_mine[(8 * j + i % 2) * kFlatStagedStride + i / 2 * 8] =
              acc.of(phase, pass * (kFlatPassPositions / 8) + j, i);
        }
      }
      ptx::named_barrier(barrier, 128);  // this pass is in shared memory
      constexpr int kPasses = kFlatPassPositions / kPositionStep, kRuns = kSteps ? kPasses : 1;
#pragma unroll
      for (int begin = 0; begin < kPasses; begin += kRuns) {
        if (!kSteps && (offset[begin] < 0 || column[begin] + phase >= params.result_w)) continue;
        float values[4 * kRuns];
        epilogue::Places<kRuns> places;
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          const float4 sum = *reinterpret_cast<const float4*>(
              s_staged + (thread / kQuads + (begin + i) * kPositionStep) * kFlatStagedStride + thread % kQuads * 4);
          const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
          for (int k = 0; k < 4; ++k) values[4 * i + k] = epilogue::finish(sums[k], bias[k]);
          const int32_t of_row = column[begin + i] + phase;
          const bool exists = offset[begin + i] >= 0 && of_row < params.result_w;
          places.channel[i] = tile.group * params.n_channels + channel;
          places.left[i] = exists ? params.n_channels - channel : 0;
          places.offset[i] = places.channel[i] + offset[begin + i] + of_row * params.result_stride[3];
        }
        if constexpr (kSteps) {
          epilogue::run_steps<Element, kRuns, 4, true>(params.steps, places, params.unit >= 4, values);
        }
#pragma unroll
        for (int i = 0; i < kRuns; ++i) {
          if (places.left[i] <= 0) continue;
          const float of_position[4] = {values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]};
          epilogue::store_neighbours(static_cast<Element*>(params.result) + places.offset[i], of_position,
                                     places.left[i], params.unit, 1);
        }
      }
    }
  }
}

#endif

}  // namespace convt::flat_sm90a
