// The gradient of the weight: a CTA's tile of input channels x output channels of one tap, over a chunk of pixels.
#pragma once

#include <cstdint>

#include "pipeline/stages.cuh"
#include "portable/fragments.cuh"
#include "portable/grad_weight_layout.h"
#include "ptx/cp_async.cuh"

namespace convt::portable {

#ifdef CONVT_HAS_MMA

// The work of a CTA.
struct WeightTile {
  int32_t group, tap_h, tap_w;
  int32_t first_x, first_gy;  // channels within the group
  int32_t chunk, first_pixel, end_pixel;
};

__device__ __forceinline__ WeightTile weight_tile_of_block(const GradWeightParams& params, int32_t block) {
  WeightTile tile;
  int32_t index = static_cast<int32_t>(blockIdx.x), digit;
  index = params.by_kernel_w(index, &tile.tap_w);
  index = params.by_kernel_h(index, &tile.tap_h);
  index = params.by_gy_tiles(index, &digit);
  tile.first_gy = digit * block;
  index = params.by_x_tiles(index, &digit);
  tile.first_x = digit * block;
  tile.chunk = params.by_groups(index, &tile.group);
  tile.first_pixel = tile.chunk * params.chunk_pixels;
  tile.end_pixel = min(tile.first_pixel + params.chunk_pixels, params.num_pixels);
  return tile;
}

// Stages of both operands: [pixel][channel], a few pixels of kBlock channels.
template <typename Element, int kBlock>
struct WeightStage {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kVectors = kBlock / kVector;  // per pixel
  static constexpr int kPixels = kPortableWeightStageBytes / static_cast<int>(sizeof(Element));
  static constexpr uint32_t kBytes = kPixels * kVectors * 16;

  // The swizzle avoids bank conflicts between pixels that are read at once: eight by ldmatrix, four by words.
  __device__ __forceinline__ static uint32_t place(int32_t pixel, int32_t vector) {
    const int32_t order = sizeof(Element) == 2 ? pixel & 7 : 2 * pixel & 7;
    return static_cast<uint32_t>(16 * (pixel * kVectors + (vector ^ order)));
  }

  // Byte offsets of a lane's words of each 16 of the kCount channels of its warp, in the first step of K.
  template <int kCount>
  struct Places {
    static constexpr int kEach = sizeof(Element) == 2 ? 1 : 2;  // float32: eight channels each
    uint32_t of[kCount / 16][kEach];
  };

  // `kRowsFirst`: in the four words of an A fragment, rows vary before K. In B, K varies before columns.
  template <bool kRowsFirst, int kCount>
  __device__ __forceinline__ static Places<kCount> places(int32_t channel) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    Places<kCount> places;
#pragma unroll
    for (int i = 0; i < kCount / 16; ++i) {
      if constexpr (sizeof(Element) == 2) {
        const int32_t first = kRowsFirst ? lane / 8 % 2 : lane / 16, second = kRowsFirst ? lane / 16 : lane / 8 % 2;
        places.of[i][0] = place(second * 8 + lane % 8, (channel + 16 * i) / kVector + first);
      } else {
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const int32_t c = channel + 16 * i + 8 * eight + lane / 4;
          places.of[i][eight] = place(lane % 4, c / kVector) + c % kVector * 4;
        }
      }
    }
    return places;
  }

  // Loads 16 rows of A or 16 columns of B. The swizzle repeats every eight pixels.
  template <bool kRowsFirst>
  __device__ __forceinline__ static void load(uint32_t (&words)[4], uint32_t s_stage,
                                              const uint32_t (&places)[Places<16>::kEach], int step) {
    constexpr int kPixelBytes = 16 * kVectors;
    if constexpr (sizeof(Element) == 2) {
      ptx::load_matrices_transposed(words, s_stage + places[0] + 16 * step * kPixelBytes);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int eight = kRowsFirst ? i % 2 : i / 2, four = kRowsFirst ? i / 2 : i % 2;
        words[i] = ptx::load_shared(s_stage + places[eight] + (8 * step + 4 * four) * kPixelBytes);
      }
    }
  }
};

// A thread copies one vector of both operands, for some pixels of every stage.
template <typename Element, int kBlock>
class WeightLoader {
 public:
  __device__ __forceinline__ WeightLoader(const GradWeightParams& params, const WeightTile& tile)
      : params_(params), tile_(tile) {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    vector_ = thread % Stage::kVectors;
    first_ = thread / Stage::kVectors;
    const int32_t x_vector = tile.first_x / Stage::kVector + vector_;
    const int32_t gy_vector = tile.first_gy / Stage::kVector + vector_;
    has_x_ = x_vector < params.x.vectors;
    has_gy_ = gy_vector < params.gy.vectors;
    g_x_ =
        static_cast<const Element*>(params.g_x) + (int64_t{tile.group} * params.x.vectors + x_vector) * Stage::kVector;
    g_gy_ = static_cast<const Element*>(params.g_gy) +
            (int64_t{tile.group} * params.gy.vectors + gy_vector) * Stage::kVector;
  }

  // Loads the stage that starts at `pixel`.
  __device__ __forceinline__ void load(int32_t pixel, uint32_t s_x, uint32_t s_gy) {
    constexpr int kStep = kPortableWeightThreads / Stage::kVectors;
    static_assert(Stage::kPixels % kStep == 0);
#pragma unroll
    for (int32_t i = 0; i < Stage::kPixels; i += kStep) {
      int32_t row, column;
      const int32_t number = pixel + first_ + i;
      const int32_t image = params_.by_rows(params_.by_columns(number, &column), &row);
      const int32_t out_row = row * params_.h.stride + tile_.tap_h * params_.h.dilation - params_.h.padding;
      const int32_t out_column = column * params_.w.stride + tile_.tap_w * params_.w.dilation - params_.w.padding;
      const bool exists = number < tile_.end_pixel &&
                          static_cast<uint32_t>(out_row) < static_cast<uint32_t>(params_.h.out) &&
                          static_cast<uint32_t>(out_column) < static_cast<uint32_t>(params_.w.out);
      const uint32_t place = Stage::place(first_ + i, vector_);
      const Element* g_x =
          g_x_ + image * params_.x.image_stride + row * params_.x.row_stride + column * params_.x.column_stride;
      const Element* g_gy = g_gy_ + image * params_.gy.image_stride + out_row * params_.gy.row_stride +
                            out_column * params_.gy.column_stride;
      ptx::cp_async_or_zero<16>(s_x + place, exists && has_x_ ? g_x : params_.g_x, exists && has_x_);
      ptx::cp_async_or_zero<16>(s_gy + place, exists && has_gy_ ? g_gy : params_.g_gy, exists && has_gy_);
    }
  }

 private:
  using Stage = WeightStage<Element, kBlock>;
  const GradWeightParams& params_;
  const WeightTile& tile_;
  int32_t first_, vector_;
  bool has_x_, has_gy_;
  const Element *g_x_, *g_gy_;
};

#endif

template <typename Element, int kBlock>
__global__ void __launch_bounds__(kPortableWeightThreads, 2)
    grad_weight(const __grid_constant__ GradWeightParams params) {
#ifdef CONVT_HAS_MMA
  using Stage = WeightStage<Element, kBlock>;
  constexpr int kWarp = kBlock / 2;  // channels of each operand per warp
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_stages = ptx::shared_address(s_bytes);
  const WeightTile tile = weight_tile_of_block(params, kBlock);
  WeightLoader<Element, kBlock> loader(params, tile);
  const auto warp = static_cast<int32_t>(threadIdx.x / 32), lane = static_cast<int32_t>(threadIdx.x % 32);
  const int32_t row = warp / 2 * kWarp, column = warp % 2 * kWarp;
  const auto of_a = Stage::template places<true, kWarp>(row);
  const auto of_b = Stage::template places<false, kWarp>(column);
  Accumulators<kWarp, kWarp> sums{};

  const int32_t num_stages = ceil_div(tile.end_pixel - tile.first_pixel, Stage::kPixels);
  const auto copy = [&](int32_t stage, int32_t slot) {
    const uint32_t s_x = s_stages + slot * 2 * Stage::kBytes;
    loader.load(tile.first_pixel + stage * Stage::kPixels, s_x, s_x + Stage::kBytes);
  };
  pipeline::run_stages(num_stages, params.stages, copy, [&](int32_t slot) {
    const uint32_t s_x = s_stages + slot * 2 * Stage::kBytes;
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t a[kWarp / 16][4], b[kWarp / 16][4];
#pragma unroll
      for (int i = 0; i < kWarp / 16; ++i) {
        Stage::template load<true>(a[i], s_x, of_a.of[i], step);
        Stage::template load<false>(b[i], s_x + Stage::kBytes, of_b.of[i], step);
        if (sizeof(Element) == 4 && params.rounds_x) round_to_tf32(a[i]);
        if (sizeof(Element) == 4 && params.rounds_gy) round_to_tf32(b[i]);
      }
      multiply_all<Element, kWarp, kWarp>(sums, a, b);
    }
  });

  // A slab is [output channel][tap row][tap][input channel of all groups]. Eight lanes store contiguous elements.
  float* g_slab = params.slabs + tile.chunk * params.slab_elements;
  const int32_t all_x = params.x.channels * params.by_groups.value;
#pragma unroll
  for (int n = 0; n < kWarp / 8; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int32_t co = tile.first_gy + column + 8 * n + lane % 4 * 2 + j;
      const int64_t tap = (int64_t{co} * params.h.kernel + tile.tap_h) * params.w.kernel + tile.tap_w;
      float* g_row = g_slab + tap * all_x + tile.group * params.x.channels;
#pragma unroll
      for (int m = 0; m < kWarp / 16; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int32_t ci = tile.first_x + row + 16 * m + 8 * i + lane / 4;
          if (co < params.gy.channels && ci < params.x.channels) g_row[ci] = sums[m][n][2 * i + j];
        }
      }
    }
  }
#endif
}

}  // namespace convt::portable
