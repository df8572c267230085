// Work of a CTA of outer products, and its copies of input pixels and runs of grad_output's rows to a stage
// (thin/outer_weight_layout.h). Called by thin/outer_weight.cuh.
#pragma once

#include "element/arithmetic.cuh"
#include "ptx/cp_async.cuh"
#include "thin/outer_weight_layout.h"
#include "tiling/window.cuh"

namespace convt::thin {

// First vector, tap row and channel of a CTA, and its chunk.
struct OuterTile {
  int32_t vector;
  int32_t kh;
  int32_t ci;
  int32_t chunk;

  __device__ __forceinline__ explicit OuterTile(const OuterWeightParams& params) {
    Digits digits{static_cast<int32_t>(blockIdx.x)};
    vector = digits.next(params.vector_tiles) * params.block_vectors;
    kh = digits.next(params.kh_tiles) * params.block_kh;
    ci = digits.next(params.ci_tiles) * params.block_ci;
    chunk = digits.rest;
  }
};

// A tile of pixels. Tiles advance along W, then H, then the images.
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

// Description of a vector of the CTA. The threads that share a channel process every threads_columns-th vector.
struct alignas(kOuterVectorBytes) OuterVector {
  uint32_t place;    // byte offset in a stage, for the first pixel
  int32_t position;  // element of grad_output's row, relative to the pixel's first tap
  int32_t kh;        // tap row within the CTA
};

template <int kWidth>
__device__ __forceinline__ void list_vectors(const OuterWeightParams& params, const OuterTile& tile,
                                             OuterVector* s_vectors) {
  const int32_t first = outer_position(params, tile.vector * kWidth);
  const int32_t count = params.threads_columns * (kOuterColumns / kWidth);
  for (int32_t index = static_cast<int32_t>(threadIdx.x); index < count; index += static_cast<int32_t>(blockDim.x)) {
    OuterVector vector = {static_cast<uint32_t>(params.gy_begin), 0, 0};
    const int32_t kh = index / params.block_vectors, column = tile.vector + index - kh * params.block_vectors;
    if (kh < params.block_kh && column < params.row_vectors) {  // padding reads arbitrary data
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

// A warp copies a run of `count` elements.
template <int kElems>
__device__ __forceinline__ void copy_run(uint32_t s_run, const float* g_run, int32_t count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll 4
  for (int32_t i = lane * kElems; i < count; i += 32 * kElems) copy_elements<kElems>(s_run + 4 * i, g_run + i);
}

// Copies a row of a tile of pixels. If a CTA owns all channels, neighbouring pixels form one run.
template <int kElems>
__device__ __forceinline__ void load_outer_x(const OuterWeightParams& params, const OuterTile& tile,
                                             const OuterPixels& pixels, int32_t row, uint32_t s_stage) {
  const int32_t columns = min(params.tile_w, params.w.in - pixels.w), channels = params.c_in - tile.ci;
  const float* g_row = params.x + pixels.image * params.x_image + (pixels.h + row) * params.x_row +
                       int64_t{pixels.w} * params.c_in + tile.ci;
  const uint32_t s_row = s_stage + 4 * row * params.tile_w * params.block_ci;
  if (params.block_ci == params.c_in) return copy_run<kElems>(s_row, g_row, columns * params.c_in);
#pragma unroll 2
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % 32; i < columns * params.by_x_vectors.value; i += 32) {
    int32_t vector;
    const int32_t column = params.by_x_vectors(i, &vector);
    if (vector * kElems < channels) {
      copy_elements<kElems>(s_row + 4 * kElems * i, g_row + column * params.c_in + vector * kElems);
    }
  }
}

// Copies the elements of a row of grad_output that a tile of pixels reads.
template <int kWidth, int kElems>
__device__ __forceinline__ void load_outer_gy(const OuterWeightParams& params, const OuterTile& tile,
                                              const OuterPixels& pixels, int32_t slot, uint32_t s_stage) {
  const int32_t row = pixels.h * params.h.stride - params.h.padding + tile.kh * params.h.dilation +
                      tiling::window_coordinate(params.rows, params.h, params.tile_h, slot);
  if (static_cast<uint32_t>(row) >= static_cast<uint32_t>(params.h.out)) return;
  const int32_t first =
      (pixels.w * params.w.stride - params.w.padding) * params.c_out + outer_position(params, tile.vector * kWidth);
  const int32_t begin = max(0, -first), end = min(params.gy_pitch, params.w.out * params.c_out - first);
  const float* g_row = params.gy + pixels.image * params.gy_image + row * params.gy_row + (first + begin);
  copy_run<kElems>(s_stage + params.gy_begin + 4 * (slot * params.gy_pitch + begin), g_row, end - begin);
}

// Starts the copies of a stage. A warp copies every num_warps-th row, counted over the rows of both operands.
template <int kWidth>
__device__ __forceinline__ void load_outer_stage(const OuterWeightParams& params, const OuterTile& tile,
                                                 const OuterPixels& pixels, uint32_t s_stage) {
  const int32_t rows = min(params.tile_h, params.h.in - pixels.h);
  const int32_t warps = static_cast<int32_t>(blockDim.x) / 32;
  for (int32_t row = static_cast<int32_t>(threadIdx.x) / 32; row < rows + params.rows.extent; row += warps) {
    if (row < rows) {
      switch (params.x_copy) {
        case 4: load_outer_x<4>(params, tile, pixels, row, s_stage); break;
        case 2: load_outer_x<2>(params, tile, pixels, row, s_stage); break;
        default: load_outer_x<1>(params, tile, pixels, row, s_stage); break;
      }
    } else {
      switch (params.gy_copy) {
        case 4: load_outer_gy<kWidth, 4>(params, tile, pixels, row - rows, s_stage); break;
        case 2: load_outer_gy<kWidth, 2>(params, tile, pixels, row - rows, s_stage); break;
        default: load_outer_gy<kWidth, 1>(params, tile, pixels, row - rows, s_stage); break;
      }
    }
  }
}

}  // namespace convt::thin
