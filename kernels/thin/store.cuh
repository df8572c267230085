// Stages a tile's results, all phases, in shared memory and stores them as contiguous runs.
#pragma once

#include "ptx/bulk_copy.cuh"
#include "ptx/shared.cuh"
#include "thin/tile.cuh"

namespace convt::thin {

// Bias of a channel. Without a bias it is -0: adding -0 leaves every sum unchanged, even -0.
template <typename Element>
__device__ __forceinline__ float bias_of(const Params& params, int64_t channel) {
  if (params.bias == nullptr) return -0.0f;
  return element::to_accumulator(static_cast<const Element*>(params.bias)[channel]);
}

// Offset of a staged element: the pass's channel, position row, H phase and column (position column * phases + W
// phase).
__device__ __forceinline__ int32_t staged_offset(const Params& params, int32_t channel, int32_t row, int32_t phase_h,
                                                 int32_t column) {
  return channel * params.stage_channel + row * params.stage_row + phase_h * params.stage_phase +
         column * params.stage_column;
}

// Destination of a tile's results. In NCHW, staged runs have the alignment of their destination in global memory: the
// strides of the staged tile are congruent to the result's modulo a vector, and the tile starts at offset `shift`.
struct TileStore {
  int64_t g_begin;  // element of staged column 0 of the tile's first row and channel; may precede the row
  int32_t shift;
  int32_t column_begin;  // staged columns inside the result
  int32_t column_end;
  int32_t row;  // result row of the first staged row; may be negative
};

template <typename Element>
__device__ __forceinline__ TileStore make_tile_store(const Params& params, const Pass& pass, const Tile& tile) {
  TileStore store;
  store.row = tile.q_h * params.h.out_stride + pass.phase_h - params.h.out_origin;
  const int32_t column = tile.q_w * params.w.out_stride - params.w.out_origin;
  store.column_begin = max(-column, 0);
  store.column_end = min(params.tile_w * params.w.out_stride, params.w.out - column);
  store.g_begin = tile.image * params.result_stride[0] +
                  (int64_t{pass.group} * params.group_co + pass.co) * params.result_stride[1] +
                  store.row * params.result_stride[2] + column * params.result_stride[3];
  const int64_t place =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(params.result) / sizeof(Element)) + store.g_begin;
  store.shift = params.channels_last_result ? 0 : static_cast<int32_t>(place & (params.store_vector - 1));
  return store;
}

// Fills the staged outputs of phases without taps with the bias, or +0 without a bias.
template <typename Element>
__device__ __forceinline__ void stage_empty_phases(const Params& params, const Pass& pass, const float* s_bias,
                                                   Element* s_stage) {
  if (params.w.num_filled == params.w.out_stride && params.h.num_filled == params.h.out_stride) return;
  const int32_t channels = pass.num_groups * pass.num_co;
  const int32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int32_t step = 32 * params.w.out_stride * params.stage_column;
#pragma unroll 1
  for (int32_t channel = static_cast<int32_t>(threadIdx.x) / 32; channel < channels; channel += warps) {
    const Element bias = element::to_element<Element>(element::add(0.0f, s_bias[channel]));
#pragma unroll 1
    for (int32_t phase_h = 0; phase_h < pass.num_phases_h; ++phase_h) {
      const uint32_t filled = (params.h.filled >> (pass.phase_h + phase_h) & 1) != 0 ? params.w.filled : 0;
#pragma unroll 1
      for (int32_t phase_w = 0; phase_w < params.w.out_stride; ++phase_w) {
        if ((filled >> phase_w & 1) != 0) continue;
        Element* s_row = s_stage + staged_offset(params, channel, 0, phase_h, lane * params.w.out_stride + phase_w);
#pragma unroll 1
        for (int32_t row = 0; row < params.tile_h; ++row, s_row += params.stage_row) {
          Element* s_element = s_row;
#pragma unroll 1
          for (int32_t q = lane; q < params.tile_w; q += 32, s_element += step) *s_element = bias;
        }
      }
    }
  }
}

// Stores elements begin .. end of a run with `lanes` lanes, at least one per element of a vector. g_run and s_run have
// the same alignment modulo a vector.
template <typename Element>
__device__ __forceinline__ void store_run(Element* g_run, const Element* s_run, int32_t begin, int32_t end,
                                          int32_t lane, int32_t lanes) {
  constexpr int32_t kVector = 16 / sizeof(Element);
  const int32_t place = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_run) / sizeof(Element)) & (kVector - 1);
  const int32_t body = (begin + place + kVector - 1) / kVector * kVector - place;  // first whole vector
  const int32_t body_end = end - ((end + place) & (kVector - 1));
#pragma unroll 4
  for (int32_t i = body + lane * kVector; i < body_end; i += lanes * kVector) {
    *reinterpret_cast<uint4*>(g_run + i) = *reinterpret_cast<const uint4*>(s_run + i);
  }
  const int32_t head = begin + lane, tail = max(body_end, body) + lane;
  if (head < min(body, end)) g_run[head] = s_run[head];
  if (tail < end) g_run[tail] = s_run[tail];
}

// Staged run `index`: row by row, channels innermost.
template <typename Element>
struct Run {
  Element* global;  // at staged column 0
  const Element* shared;
  int32_t body;  // first whole vector
  int32_t body_end;
  bool exists;
};

template <typename Element>
__device__ __forceinline__ Run<Element> run_of(const Params& params, const TileStore& store, Element* g_result,
                                               const Element* s_stage, int32_t index, int32_t channels,
                                               int32_t row_step) {
  constexpr int32_t kVector = 16 / sizeof(Element);
  const int32_t row = index / channels, channel = index - row * channels;
  int32_t phase_h;
  const int32_t position_row = params.by_phases_h(row, &phase_h);
  const int32_t h = row * row_step;
  Run<Element> run;
  run.exists = store.row + h >= 0 && store.row + h < params.h.out;
  run.global = g_result + channel * params.result_stride[1] + h * params.result_stride[2];
  run.shared = s_stage + staged_offset(params, channel, position_row, phase_h, 0);
  const int32_t place = static_cast<int32_t>(reinterpret_cast<uintptr_t>(run.global) / sizeof(Element)) & (kVector - 1);
  run.body = (store.column_begin + place + kVector - 1) / kVector * kVector - place;
  run.body_end = run.exists ? store.column_end - ((store.column_end + place) & (kVector - 1)) : 0;
  return run;
}

template <typename Element>
__device__ __forceinline__ void store_tile(const Params& params, const Pass& pass, const TileStore& store,
                                           const Element* s_stage) {
  auto* g_result = static_cast<Element*>(params.result) + store.g_begin;
  const int32_t channels = pass.num_groups * pass.num_co;
  const int32_t rows = params.tile_h * pass.num_phases_h;
  const int32_t row_step = params.phase_splits > 1 ? params.h.out_stride : 1;  // result rows between staged rows
  const int32_t lanes = 1 << params.store_lanes_log2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & (lanes - 1);
  const int32_t unit = static_cast<int32_t>(threadIdx.x) >> params.store_lanes_log2;
  const int32_t units = 1 << params.store_rows_log2;
  const int32_t inner = unit & (units - 1), outer = unit >> params.store_rows_log2;
  const int32_t outer_step = static_cast<int32_t>(blockDim.x) >> (params.store_lanes_log2 + params.store_rows_log2);
  if (params.channels_last_result) {
    if (outer >= outer_step) return;  // surplus threads, if the thread count is not a power of two
    // A run is the channels of one pixel.
#pragma unroll 1
    for (int32_t row = outer; row < rows; row += outer_step) {
      int32_t phase_h;
      const int32_t position_row = params.by_phases_h(row, &phase_h);
      const int32_t h = row * row_step;
      if (store.row + h < 0 || store.row + h >= params.h.out) continue;
      Element* g_row = g_result + h * params.result_stride[2];
      const Element* s_row = s_stage + staged_offset(params, 0, position_row, phase_h, 0);
#pragma unroll 1
      for (int32_t column = inner; column < store.column_end; column += units) {
        if (column < store.column_begin) continue;
        Element* g_pixel = g_row + column * params.result_stride[3];
        const Element* s_pixel = s_row + column * params.stage_column;
        if (params.store_vector == 1) {
          for (int32_t i = lane; i < channels; i += lanes) g_pixel[i] = s_pixel[i];
        } else {
          for (int32_t i = lane * params.store_vector; i < channels; i += lanes * params.store_vector) {
            *reinterpret_cast<uint4*>(g_pixel + i) = *reinterpret_cast<const uint4*>(s_pixel + i);
          }
        }
      }
    }
    return;
  }
#ifdef CONVT_HAS_BULK_COPY
  // One thread per run copies its whole vectors. Sixteen lanes per run write the elements before and after them.
  constexpr int32_t kVector = 16 / sizeof(Element);
  const int32_t runs = channels * rows;
#pragma unroll 1
  for (int32_t i = threadIdx.x; i < runs; i += blockDim.x) {
    const Run<Element> run = run_of(params, store, g_result, s_stage, i, channels, row_step);
    if (run.body_end > run.body) {
      ptx::bulk_store(run.global + run.body, ptx::shared_address(run.shared + run.body),
                      (run.body_end - run.body) * static_cast<int32_t>(sizeof(Element)));
    }
  }
  ptx::bulk_commit();
  const int32_t first_place = static_cast<int32_t>(reinterpret_cast<uintptr_t>(g_result) / sizeof(Element));
  const bool whole_vectors = params.aligned_runs && (first_place + store.column_begin) % kVector == 0 &&
                             (store.column_end - store.column_begin) % kVector == 0;
  if (whole_vectors) return;
#pragma unroll 1
  for (int32_t i = threadIdx.x / 16; i < runs; i += blockDim.x / 16) {
    const Run<Element> run = run_of(params, store, g_result, s_stage, i, channels, row_step);
    const int32_t edge = threadIdx.x % 16;
    const int32_t place = edge < 8 ? store.column_begin + edge : max(run.body_end, run.body) + edge - 8;
    if (run.exists && place < (edge < 8 ? min(run.body, store.column_end) : store.column_end)) {
      run.global[place] = run.shared[place];
    }
  }
#else
  if (outer >= outer_step) return;  // surplus threads, if the thread count is not a power of two
  const int64_t g_step = outer_step * params.result_stride[1];
  const int32_t s_step = outer_step * params.stage_channel;
#pragma unroll 1
  for (int32_t row = inner; row < rows; row += units) {
    int32_t phase_h;
    const int32_t position_row = params.by_phases_h(row, &phase_h);
    const int32_t h = row * row_step;
    if (store.row + h < 0 || store.row + h >= params.h.out) continue;
    Element* g_run = g_result + outer * params.result_stride[1] + h * params.result_stride[2];
    const Element* s_run = s_stage + staged_offset(params, outer, position_row, phase_h, 0);
#pragma unroll 1
    for (int32_t channel = outer; channel < channels; channel += outer_step) {
      store_run(g_run, s_run, store.column_begin, store.column_end, lane, lanes);
      g_run += g_step, s_run += s_step;
    }
  }
#endif
}

}  // namespace convt::thin
