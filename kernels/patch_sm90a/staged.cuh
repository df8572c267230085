// Stores through shared memory. Some channels at a time are written in the layout of the result, so that a warp stores
// whole runs of a row. A 32-byte sector shared by two stores costs many times as much as a whole one.
#pragma once

#include "patch_sm90a/epilogue.cuh"
#include "ptx/global.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Where a thread writes its results in shared memory, and what it stores: a vector of kVector results of every
// kChannels-th channel.
template <typename Shape, int kVector>
struct Staging {
  using Element = typename Shape::Element;
  static constexpr int kStride = patch_staged_stride(Shape::kElement);  // elements between channels
  static constexpr int kPlaces = kPatchPositions * Shape::kBlocks / kVector, kChannels = 128 / kPlaces;
  static_assert(kChannels % 2 == 0, "a thread's channels are all even or all odd");

  Element* s_position[2];  // for the thread's first channel
  int32_t positions;       // existing positions of the warpgroup
  int32_t row_step;        // elements between rows of the patches
  int32_t channels;  // result channels from the thread's first on; 0 if the thread's vector does not exist
  int32_t first_channel;  // the thread's first channel, counted over all groups
  const Element* s_vector;
  Element* g_vector;
};

__device__ __forceinline__ int64_t odd_offset(const Params& params, int32_t channel) {
  return channel % 2 == 1 ? params.odd_channel : 0;
}

// Prefetches the tensor that a program adds to the thread's vectors. Loads among the steps would wait for memory a few
// vectors at a time.
template <typename Shape, int kVector>
__device__ __forceinline__ void prefetch_added(const Params& params, const Staging<Shape, kVector>& staging) {
  using Element = typename Shape::Element;
  const auto* added = static_cast<const Element*>(params.steps.tensors.results);
  if ((params.steps.parts & epilogue::kTensorsPart) == 0 || added == nullptr) return;
  const Element* g = added + (staging.g_vector - static_cast<Element*>(params.result));
#pragma unroll 4
  for (int channel = 0; channel < kPatchChannels; channel += Staging<Shape, kVector>::kChannels) {
    if (channel < staging.channels) ptx::prefetch_to_l2(g + channel * params.result_stride[1]);
  }
}

// Stores a tile's results through shared memory, some channels at a time. kTogether: a thread's positions share a row.
template <typename Shape, int kVector, bool kTogether, bool kSteps>
__device__ __forceinline__ void store_staged(const Accumulators<Shape>& acc, const Params& params,
                                             const Staging<Shape, kVector>& staging, int32_t consumer,
                                             uint32_t s_bias) {
  using Element = typename Shape::Element;
  constexpr int kStride = Staging<Shape, kVector>::kStride;
  constexpr int kBlocks = 4 / Shape::kElement;  // of 8 channels per pass
  constexpr int kColumns = Shape::kColumns;
  if constexpr (kSteps) prefetch_added(params, staging);
#pragma unroll
  for (int begin = 0; begin < kPatchChannels / 8; begin += kBlocks) {
    const int32_t buffer = begin / kBlocks % 2 * kBlocks * 8 * kStride;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int j = begin + block;
      float bias[2];
      load_bias<Shape>(bias, s_bias, j);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int row = 0; row < Shape::kBlocks / kColumns; ++row) {
          Element both[2 * kColumns];
#pragma unroll
          for (int k = 0; k < 2 * kColumns; ++k) {
            const float sum = acc.r[row * kColumns + k % kColumns][4 * j + k / kColumns * 2 + i];
            both[k] = element::to_element<Element>(epilogue::finish(sum, bias[i]));
          }
          const int32_t to = buffer + (8 * block + i) * kStride + row * staging.row_step;
          if constexpr (kTogether) {
            if (position_of_thread<Shape>(0) < staging.positions) {
              epilogue::store_vector(staging.s_position[0] + to, both);
            }
          } else {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              Element one[kColumns];
              memcpy(one, both + h * kColumns, sizeof(one));
              if (position_of_thread<Shape>(h) < staging.positions) {
                epilogue::store_vector(staging.s_position[h] + to, one);
              }
            }
          }
        }
      }
    }
    ptx::named_barrier(1 + consumer, 128);  // the buffer is written, and the other buffer has been read
    using Word = std::conditional_t<kVector * Shape::kElement == 16, uint4, uint2>;
    constexpr int kStep = Staging<Shape, kVector>::kChannels;
    // CTAs with one consumer warpgroup have fewer registers.
    constexpr int kRuns = epilogue::runs_together(kVector, 8 * kBlocks / kStep, Shape::kConsumers == 1 ? 8 : 16);
#pragma unroll
    for (int k = 0; k < 8 * kBlocks; k += kRuns * kStep) {
      Word words[kRuns];
      epilogue::Places<kRuns> places;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        const int32_t channel = 8 * begin + k + i * kStep;
        const Element* g = staging.g_vector + channel * params.result_stride[1];
        words[i] = *reinterpret_cast<const Word*>(staging.s_vector + buffer + (k + i * kStep) * kStride);
        places.channel[i] = staging.first_channel + channel;
        places.left[i] = channel < staging.channels ? kVector : 0;
        places.offset[i] = g - static_cast<Element*>(params.result);
      }
      if constexpr (kSteps) {
        Element elements[kRuns * kVector];
        memcpy(elements, words, sizeof(words));
        epilogue::run_elements<Element, kRuns, kVector>(params.steps, places, true, elements);
        memcpy(words, elements, sizeof(words));
      }
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        if (places.left[i] <= 0) continue;
        *reinterpret_cast<Word*>(static_cast<Element*>(params.result) + places.offset[i]) = words[i];
      }
    }
  }
}

// Tiles of whole rows of pairs of columns, which are contiguous up to the end of an image. kEven: rows have an even
// number of positions.
template <typename Shape, bool kEven, bool kSteps>
__device__ __forceinline__ void store_rows(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                           typename Shape::Element* s_staged, int32_t consumer, uint32_t s_bias) {
  using Element = typename Shape::Element;
  constexpr int kVector = kEven ? 16 / Shape::kElement : 4;  // divides the rows of patches
  using Staging = Staging<Shape, kVector>;
  const int32_t thread = static_cast<int32_t>(threadIdx.x % 128);
  const int32_t row_results = params.by_row.value * kPatchTaps;
  Staging staging;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int32_t column;
    const int32_t row = params.by_row(position_of_thread<Shape>(h), &column);
    staging.s_position[h] = s_staged + thread % 4 * 2 * Staging::kStride + row * row_results + column * 2;
  }
  staging.positions = params.step;
  staging.row_step = row_results / 2;
  const int32_t place = thread % Staging::kPlaces;
  int32_t of_row, row_of_image;
  const int32_t row = params.by_row(place * kVector / kPatchTaps, &of_row);
  const int32_t image = params.by_rows(params.by_row(tile.begin, &row_of_image) + row, &row_of_image);
  const bool exists = place * kVector < params.step * kPatchTaps && image < params.batch;
  const int32_t first = first_channel<Shape>(tile) + thread / Staging::kPlaces;
  staging.channels = exists ? params.n_channels - first : 0;
  staging.first_channel = tile.group * params.n_channels + first;
  staging.s_vector = s_staged + thread / Staging::kPlaces * Staging::kStride + place * kVector;
  staging.g_vector = static_cast<Element*>(params.result) +
                     image_offset(params, image, params.result_batch, params.result_stride[0]) +
                     (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1] +
                     row_of_image * params.by_tap_rows.value * params.result_stride[2] + odd_offset(params, first) +
                     tap_row_offset(params, tile.tap_h, params.result_stride[2]) + of_row * kPatchTaps;
  store_staged<Shape, kVector, kEven, kSteps>(acc, params, staging, consumer, s_bias);
}

// Tiles that begin and end anywhere. Stores runs of up to 64 positions of each row of a channel's patches. A vector of
// kVector results never spans two rows.
template <typename Shape, int kVector, bool kSteps>
__device__ __forceinline__ void store_runs(const Accumulators<Shape>& acc, const Params& params, const Tile& tile,
                                           typename Shape::Element* s_staged, int32_t consumer, uint32_t s_bias) {
  using Element = typename Shape::Element;
  using Staging = Staging<Shape, kVector>;
  constexpr int kRun = kPatchPositions * Shape::kColumns;
  const int32_t thread = static_cast<int32_t>(threadIdx.x % 128);
  Staging staging;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    staging.s_position[h] =
        s_staged + thread % 4 * 2 * Staging::kStride + position_of_thread<Shape>(h) * Shape::kColumns;
  }
  staging.positions = kPatchPositions;
  staging.row_step = kRun;
  const int32_t result = thread % Staging::kPlaces * kVector;
  const int64_t offset = patch_offset<Shape>(params, tile, tile.begin + result % kRun / Shape::kColumns);
  const int32_t first = first_channel<Shape>(tile) + thread / Staging::kPlaces;
  staging.channels = offset >= 0 ? params.n_channels - first : 0;
  staging.first_channel = tile.group * params.n_channels + first;
  staging.s_vector = s_staged + thread / Staging::kPlaces * Staging::kStride + result;
  staging.g_vector = static_cast<Element*>(params.result) + offset + result / kRun * params.result_stride[2] +
                     (int64_t{tile.group} * params.n_channels + first) * params.result_stride[1] +
                     odd_offset(params, first);
  store_staged<Shape, kVector, Shape::kNeighbours, kSteps>(acc, params, staging, consumer, s_bias);
}

#endif

}  // namespace convt::patch_sm90a
