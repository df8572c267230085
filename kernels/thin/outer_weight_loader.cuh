// What a CTA of outer products owns, and its copies: pixels of the input and runs of grad_output's rows -> a stage
// (plan/thin_outer_weight.h). Called by thin/outer_weight.cuh. Must not know: the sums.
#pragma once

#include "ptx/cp_async.cuh"
#include "simt/grad_weight_loader.cuh"
#include "simt/mainloop.cuh"
#include "thin/outer_weight_params.h"

namespace convt::thin {

// First vector, tap row and channel of a CTA, and its chunk.
struct OuterTile {
  int32_t vector;
  int32_t kh;
  int32_t ci;
  int32_t chunk;

  __device__ __forceinline__ explicit OuterTile(const OuterWeightParams& params) {
    int32_t index = static_cast<int32_t>(blockIdx.x);
    auto next_digit = [&index](int32_t count) {
      const int32_t digit = index % count;
      index /= count;
      return digit;
    };
    vector = next_digit(params.vector_tiles) * params.block_vectors;
    kh = next_digit(params.kh_tiles) * params.block_kh;
    ci = next_digit(params.ci_tiles) * params.block_ci;
    chunk = index;
  }
};

// A tile of pixels. Tiles follow each other along W, then H, then the images.
struct OuterPixels {
  int32_t image;
  int32_t h;
  int32_t w;

  __device__ __forceinline__ OuterPixels(const OuterWeightParams& params, int32_t index) {
    const int32_t row = index / params.w_tiles;
    w = (index - row * params.w_tiles) * params.tile_w;
    image = row / params.h_tiles;
    h = (row - image * params.h_tiles) * params.tile_h;
  }

  __device__ __forceinline__ void advance(const OuterWeightParams& params) {
    w += params.tile_w;
    if (w < params.w.in) return;
    w = 0;
    h += params.tile_h;
    if (h < params.h.in) return;
    h = 0;
    ++image;
  }
};

// What each vector of the CTA is. The threads that share a channel take every threads_columns-th of them.
struct alignas(kOuterVectorBytes) OuterVector {
  uint32_t place;    // in a stage, for its first pixel
  int32_t position;  // from the pixel's first tap, in grad_output's row
  int32_t kh;        // of the CTA
};

template <int kWidth>
__device__ __forceinline__ void list_vectors(const OuterWeightParams& params, const OuterTile& tile,
                                             OuterVector* s_vectors) {
  const int32_t first = outer_position(params, tile.vector * kWidth);
  const int32_t count = params.threads_columns * (kOuterColumns / kWidth);
  for (int32_t index = static_cast<int32_t>(threadIdx.x); index < count; index += static_cast<int32_t>(blockDim.x)) {
    OuterVector vector = {static_cast<uint32_t>(params.gy_begin), 0, 0};
    const int32_t kh = index / params.block_vectors, column = tile.vector + index - kh * params.block_vectors;
    if (kh < params.block_kh && column < params.row_vectors) {  // others are read somewhere, and not stored
      vector.kh = kh;
      vector.position = outer_position(params, column * kWidth);
      vector.place += 4 * (kh * params.rows.step * params.gy_pitch + vector.position - first);
    }
    s_vectors[index] = vector;
  }
}

template <int kElems>
__device__ __forceinline__ void copy_elements(uint32_t shared, const float* global) {
  if constexpr (kElems == 4) {
    ptx::cp_async_past_l1(shared, global);
  } else {
    ptx::cp_async<4 * kElems>(shared, global);
  }
}

template <int kElems>
__device__ __forceinline__ void load_outer_x(const OuterWeightParams& params, const OuterTile& tile,
                                             const OuterPixels& pixels, uint32_t s_stage) {
  const int32_t rows = min(params.tile_h, params.h.in - pixels.h), columns = params.w.in - pixels.w;
  const int32_t channels = params.c_in - tile.ci;
  const float* g_x = params.x + pixels.image * params.x_image + pixels.h * params.x_row +
                     int64_t{pixels.w} * params.c_in + tile.ci;
  const int32_t count = rows * params.tile_w * params.by_x_vectors.value;
#pragma unroll 4
  for (int32_t index = static_cast<int32_t>(threadIdx.x); index < count; index += static_cast<int32_t>(blockDim.x)) {
    int32_t vector, column;
    const int32_t row = params.by_tile_w(params.by_x_vectors(index, &vector), &column);
    if (column < columns && vector * kElems < channels) {
      copy_elements<kElems>(s_stage + index * 4 * kElems,
                            g_x + row * params.x_row + (column * params.c_in + vector * kElems));
    }
  }
}

template <int kWidth, int kElems>
__device__ __forceinline__ void load_outer_gy(const OuterWeightParams& params, const OuterTile& tile,
                                              const OuterPixels& pixels, uint32_t s_stage) {
  const int32_t row_0 = pixels.h * params.h.stride - params.h.padding + tile.kh * params.h.dilation;
  const int32_t first =
      (pixels.w * params.w.stride - params.w.padding) * params.c_out + outer_position(params, tile.vector * kWidth);
  const int32_t end = params.w.out * params.c_out;
  const float* g_gy = params.gy + pixels.image * params.gy_image + row_0 * params.gy_row + first;
  const int32_t count = params.rows.extent * params.by_gy_vectors.value;
#pragma unroll 4
  for (int32_t index = static_cast<int32_t>(threadIdx.x); index < count; index += static_cast<int32_t>(blockDim.x)) {
    int32_t vector;
    const int32_t slot = params.by_gy_vectors(index, &vector);
    const int32_t row = simt::window_coordinate(params.rows, params.h, params.tile_h, slot);
    const int32_t position = first + vector * kElems;
    if (static_cast<uint32_t>(row_0 + row) < static_cast<uint32_t>(params.h.out) && position >= 0 && position < end) {
      copy_elements<kElems>(s_stage + params.gy_begin + index * 4 * kElems,
                            g_gy + row * params.gy_row + vector * kElems);
    }
  }
}

// Starts the copies of a stage.
template <int kWidth>
__device__ __forceinline__ void load_outer_stage(const OuterWeightParams& params, const OuterTile& tile,
                                                 const OuterPixels& pixels, uint32_t s_stage) {
  switch (params.x_copy) {
    case 4: load_outer_x<4>(params, tile, pixels, s_stage); break;
    case 2: load_outer_x<2>(params, tile, pixels, s_stage); break;
    default: load_outer_x<1>(params, tile, pixels, s_stage); break;
  }
  switch (params.gy_copy) {
    case 4: load_outer_gy<kWidth, 4>(params, tile, pixels, s_stage); break;
    case 2: load_outer_gy<kWidth, 2>(params, tile, pixels, s_stage); break;
    default: load_outer_gy<kWidth, 1>(params, tile, pixels, s_stage); break;
  }
}

}  // namespace convt::thin
