// Gradient of the weight in channels_last by outer products (kernels/ORDER.md defines the order of each sum).
//     slab[ci, kh, j] = sum over the chunk's pixels (n, ih, iw) of
//                       x[n, ih, iw, ci] * row[(iw * stride - padding) * c_out + position of column j],
// where `row` is grad_output's row ih * stride - padding + kh * dilation, and j = kw * c_out + co.
// thin/outer_weight_layout.h derives this and defines the work of a CTA. Launched by thin/launch.cpp.
#pragma once

#include "element/vector.cuh"
#include "thin/outer_weight_loader.cuh"

namespace convt::thin {

using OuterAccumulators = float[kOuterColumns][kOuterChannels];

// A thread's share of the CTA's weights.
struct OuterWork {
  int32_t split;
  int32_t ci;       // first channel, within the CTA
  int32_t columns;  // index among the threads that share a channel
  bool idle;        // no weights: this thread only loads

  // Lanes alternate: two threads along the channels, then two along the columns, and so on. A warp's reads thus have
  // few distinct addresses. More than four threads along the channels would cause bank conflicts.
  __device__ __forceinline__ explicit OuterWork(const OuterWeightParams& params) {
    Digits digits{static_cast<int32_t>(threadIdx.x)};
    const int32_t low_ci = params.threads_ci % 2 == 0 ? 2 : 1;
    const int32_t low_columns = params.threads_columns % 2 == 0 ? 2 : params.threads_columns;
    ci = digits.next(low_ci);
    columns = digits.next(low_columns);
    ci += digits.next(params.threads_ci / low_ci) * low_ci;
    columns += digits.next(params.threads_columns / low_columns) * low_columns;
    ci *= kOuterChannels;
    split = digits.rest;
    idle = split >= params.splits;
  }
};

// A thread's operands of one pixel.
template <int kWidth>
struct OuterOperands {
  static constexpr int kVectors = kOuterColumns / kWidth;
  float x[kOuterChannels];
  float gy[kOuterColumns];

  __device__ __forceinline__ void read(uint32_t s_x, const uint32_t (&s_gy)[kVectors], uint32_t gy_offset) {
    element::read_shared<kOuterChannels>(x, s_x);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kWidth == 1) {
        gy[v] = __uint_as_float(ptx::load_shared(s_gy[v] + gy_offset));
      } else {
        element::read_shared<kWidth>(gy + v * kWidth, s_gy[v] + gy_offset);
      }
    }
  }

  __device__ __forceinline__ void multiply_column(OuterAccumulators& r_acc, int column) const {
#pragma unroll
    for (int i = 0; i < kOuterChannels; ++i) {
      const int ci = column % 2 == 0 ? i : kOuterChannels - 1 - i;  // consecutive products share an operand
      r_acc[column][ci] = element::fused_multiply_add(x[ci], gy[column], r_acc[column][ci]);
    }
  }

  __device__ __forceinline__ void multiply(OuterAccumulators& r_acc) const {
#pragma unroll
    for (int column = 0; column < kOuterColumns; ++column) multiply_column(r_acc, column);
  }
};

// Multiplies `count` interior pixels. The next pixel's operands are read while the current ones are multiplied.
template <int kWidth>
__device__ __forceinline__ void multiply_inside(OuterAccumulators& r_acc, uint32_t s_x,
                                                const uint32_t (&s_gy)[kOuterColumns / kWidth], uint32_t gy_offset,
                                                uint32_t x_step, uint32_t gy_step, int32_t count) {
  OuterOperands<kWidth> r_even, r_odd;
  r_even.read(s_x, s_gy, gy_offset);
#pragma unroll 1
  for (; count > 1; count -= 2) {
    s_x += x_step, gy_offset += gy_step;
    r_odd.read(s_x, s_gy, gy_offset);
    r_even.multiply(r_acc);
    if (count > 2) {
      s_x += x_step, gy_offset += gy_step;
      r_even.read(s_x, s_gy, gy_offset);
    }
    r_odd.multiply(r_acc);
  }
  if (count > 0) r_even.multiply(r_acc);
}

// Multiplies a border pixel and skips the taps that do not exist. position: element of a row of grad_output that its
// first tap reads. row: row of grad_output that the CTA's first tap row reads.
template <int kWidth>
__device__ __forceinline__ void multiply_border(OuterAccumulators& r_acc, const OuterWeightParams& params, uint32_t s_x,
                                                const uint32_t (&s_gy)[kOuterColumns / kWidth], uint32_t gy_offset,
                                                const OuterVector* s_vectors, int32_t position, int32_t row) {
  OuterOperands<kWidth> r_operands;
  r_operands.read(s_x, s_gy, gy_offset);
#pragma unroll
  for (int v = 0; v < kOuterColumns / kWidth; ++v) {
    const OuterVector vector = s_vectors[v * params.threads_columns];
    const int32_t oh = row + vector.kh * params.h.dilation;
    const uint32_t end =
        static_cast<uint32_t>(oh) < static_cast<uint32_t>(params.h.out) ? params.w.out * params.c_out : 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (static_cast<uint32_t>(position + vector.position + i) < end) {
        r_operands.multiply_column(r_acc, v * kWidth + i);
      }
    }
  }
}

// Reduces the accumulators of the splits in halves: the second half is added to the first, until one split remains. The
// scratch reuses the memory of the stages.
__device__ __forceinline__ void add_splits(OuterAccumulators& r_acc, const OuterWeightParams& params, uint32_t s_sums) {
  for (int32_t half = params.splits / 2; half > 0; half /= 2) {
    __syncthreads();  // all threads have read the previous contents
    const int32_t takers = half * params.jobs;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const bool gives = thread >= takers && thread < 2 * takers;
    const uint32_t s_thread = s_sums + 16 * (gives ? thread - takers : thread);
    if (gives) {
#pragma unroll
      for (int i = 0; i < kOuterColumns * kOuterChannels; i += 4) {
        const float* r_four = &r_acc[i / kOuterChannels][i % kOuterChannels];
        const uint32_t words[4] = {__float_as_uint(r_four[0]), __float_as_uint(r_four[1]), __float_as_uint(r_four[2]),
                                   __float_as_uint(r_four[3])};
        ptx::store_shared(s_thread + i / 4 * 16 * takers, words);
      }
    }
    __syncthreads();  // the second half's accumulators are visible
    if (thread < takers) {
#pragma unroll
      for (int i = 0; i < kOuterColumns * kOuterChannels; i += 4) {
        float r_four[4];
        element::read_shared<4>(r_four, s_thread + i / 4 * 16 * takers);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& r_sum = r_acc[i / kOuterChannels][i % kOuterChannels + k];
          r_sum = element::add(r_sum, r_four[k]);
        }
      }
    }
  }
}

// Slab: [c_in, h.kernel, columns].
template <int kWidth>
__device__ __forceinline__ void store_slab(const OuterAccumulators& r_acc, const OuterWeightParams& params,
                                           const OuterTile& tile, const OuterWork& work) {
  struct alignas(4 * kWidth) Vector {
    float values[kWidth];
  };
  float* g_slab = params.slabs + int64_t{tile.chunk} * params.c_in * params.h.kernel * params.columns;
  const bool whole = params.columns % kWidth == 0;
#pragma unroll
  for (int v = 0; v < kOuterColumns / kWidth; ++v) {
    const int32_t index = v * params.threads_columns + work.columns;
    const int32_t kh = index / params.block_vectors,
                  column = (tile.vector + index - kh * params.block_vectors) * kWidth;
    if (kh >= params.block_kh || tile.kh + kh >= params.h.kernel || column >= params.columns) continue;
#pragma unroll
    for (int ci = 0; ci < kOuterChannels; ++ci) {
      const int32_t channel = tile.ci + work.ci + ci;
      if (channel >= params.c_in) continue;
      float* g_sums = g_slab + (int64_t{channel} * params.h.kernel + tile.kh + kh) * params.columns + column;
      if (whole) {
        Vector vector;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) vector.values[i] = r_acc[v * kWidth + i][ci];
        *reinterpret_cast<Vector*>(g_sums) = vector;
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          if (column + i < params.columns) g_sums[i] = r_acc[v * kWidth + i][ci];
        }
      }
    }
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kMaxOuterWeightThreads, 2)
    outer_weight_kernel(const __grid_constant__ OuterWeightParams params) {
  extern __shared__ __align__(16) unsigned char s_bytes[];
  constexpr int kVectors = kOuterColumns / kWidth;
  const uint32_t s_stages = ptx::shared_address(s_bytes);
  const Axis &h = params.h, &w = params.w;
  const OuterTile tile(params);
  const OuterWork work(params);
  auto* s_vectors = reinterpret_cast<OuterVector*>(s_bytes + params.list_begin);

  list_vectors<kWidth>(params, tile, s_vectors);
  __syncthreads();  // the list is complete

  // Columns of interior pixels, whose taps all exist.
  const int32_t first_tap = tile.vector * kWidth / params.c_out;
  const int32_t last_tap = (min((tile.vector + params.block_vectors) * kWidth, params.columns) - 1) / params.c_out;
  const int32_t before = w.padding - first_tap * w.dilation, behind = w.out - 1 + w.padding - last_tap * w.dilation;
  const int32_t inside_begin = before > 0 ? ceil_div(before, w.stride) : 0;
  const int32_t inside_end = behind >= 0 ? behind / w.stride + 1 : 0;
  const int32_t last_kh = min(params.block_kh, h.kernel - tile.kh) - 1;

  uint32_t s_gy[kVectors];  // addresses in the first stage
  s_vectors += work.columns;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) s_gy[v] = s_stages + s_vectors[v * params.threads_columns].place;
  const uint32_t pixel_bytes = 4 * params.block_ci, run_bytes = 4 * w.stride * params.c_out;
  const int32_t splits_log2 = 31 - __clz(params.splits);

  OuterAccumulators r_acc = {};

  const int32_t end = min((tile.chunk + 1) * params.tiles_per_chunk, params.pixel_tiles);
  int32_t index = tile.chunk * params.tiles_per_chunk;
  OuterPixels pixels(params, index), next = pixels;
  load_outer_stage<kWidth>(params, tile, next, s_stages);
  ptx::cp_async_commit();
  uint32_t slot = 0;
#pragma unroll 1
  for (; index < end; ++index) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // this stage has arrived, and all threads have read the other one
    next.advance(params);
    if (index + 1 < end) {
      load_outer_stage<kWidth>(params, tile, next, s_stages + (slot ^ 1) * params.stage_bytes);
      ptx::cp_async_commit();
    }
    const uint32_t stage = slot * params.stage_bytes;
    const int32_t rows = work.idle ? 0 : min(params.tile_h, h.in - pixels.h);
    const int32_t columns = min(params.tile_w, w.in - pixels.w);
#pragma unroll 1
    for (int32_t row = 0; row < rows; ++row) {
      const int32_t oh = (pixels.h + row) * h.stride - h.padding + tile.kh * h.dilation;
      const bool exists = oh >= 0 && oh + last_kh * h.dilation < h.out;  // whether all tap rows exist
      const int32_t first = exists ? inside_begin - pixels.w : columns, last = exists ? inside_end - pixels.w : 0;
      const uint32_t s_x = s_stages + stage + work.ci * 4 + row * params.tile_w * pixel_bytes;
      const uint32_t gy_row = stage + row * params.rows.position_step * params.gy_pitch * 4;
#pragma unroll 1
      for (int32_t column = work.split; column < columns;) {
        const uint32_t s_x_column = s_x + column * pixel_bytes, gy_offset = gy_row + column * run_bytes;
        if (column >= first && column < last) {
          const int32_t count = (min(columns, last) - column + params.splits - 1) >> splits_log2;
          multiply_inside<kWidth>(r_acc, s_x_column, s_gy, gy_offset, pixel_bytes << splits_log2,
                                  run_bytes << splits_log2, count);
          column += count << splits_log2;
        } else {
          multiply_border<kWidth>(r_acc, params, s_x_column, s_gy, gy_offset, s_vectors,
                                  ((pixels.w + column) * w.stride - w.padding) * params.c_out, oh);
          column += params.splits;
        }
      }
    }
    pixels = next;
    slot ^= 1;
  }
  add_splits(r_acc, params, s_stages);
  if (work.split == 0) store_slab<kWidth>(r_acc, params, tile, work);
}

}  // namespace convt::thin
