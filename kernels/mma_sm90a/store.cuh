// Epilogue: registers -> shared memory, where W phases are interleaved to rows -> contiguous runs in global memory, by
// bulk copies. Rows without taps are copied from rows of repeated biases.
#pragma once

#include "mma_sm90a/mainloop.cuh"
#include "mma_sm90a/tile.cuh"
#include "ptx/bulk_copy.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int32_t kNowhere = INT32_MIN / 2;  // an offset that stays negative when others are added

// A channel's bias, or -0 without bias. Adding -0 changes no value, not even -0.
template <typename Element>
__device__ __forceinline__ float bias_of(const Params& params, const Pass& pass, int32_t co) {
  if (params.bias == nullptr) return -0.0f;
  return element::to_accumulator(
      static_cast<const Element*>(params.bias)[int64_t{pass.group} * params.group_co + pass.co + co]);
}

// The value of a result without taps: the bias, or +0.
template <typename Element>
__device__ __forceinline__ Element empty_of(const Params& params, const Pass& pass, int32_t co) {
  return element::to_element<Element>(element::add(0.0f, bias_of<Element>(params, pass, co)));
}

// Destination of a tile's results. Runs have the same alignment in shared and in global memory: the strides in shared
// memory are congruent to the result's modulo a vector, and the tile is shifted by `shift` elements.
struct TileStore {
  int64_t g_begin;  // result element of column 0 of the tile's first row and channel; may be before the row
  int32_t shift;
  int32_t column_begin;  // tile columns inside the result
  int32_t column_end;
  int32_t row;  // result row of the first position row's first phase; may be negative
};

template <typename Traits>
__device__ __forceinline__ TileStore make_tile_store(const Params& params, const Pass& pass, const Tile& tile) {
  TileStore store;
  store.row = tile.q_h * params.h.out_stride + pass.phase_h - params.h.out_origin;
  const int32_t column = tile.q_w * params.w.out_stride - params.w.out_origin;
  store.column_begin = max(-column, 0);
  store.column_end = min(params.tile_w * params.w.out_stride, params.w.out - column);
  store.g_begin = result_row(params, pass, tile, store.row) + column;
  store.shift = static_cast<int32_t>(store.g_begin & (Traits::kVector - 1));
  return store;
}

template <typename Element>
__device__ __forceinline__ void stage_element(uint32_t s_to, float value) {
  if constexpr (sizeof(Element) == 4) {
    ptx::store_shared(s_to, __float_as_uint(value));
  } else {
    const Element rounded = element::to_element<Element>(value);
    ptx::store_shared_16(s_to, reinterpret_cast<const uint16_t&>(rounded));
  }
}

// Writes the results of a unit, with the bias, to shared memory at s_stage.
template <typename Traits>
__device__ __forceinline__ void stage_unit(const Accumulators<Traits>& r_acc, const int2* s_columns,
                                           const int2* s_positions, uint32_t s_stage) {
  using Element = typename Traits::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  int32_t place[Traits::kPositionTiles][2];
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    const int4 pair = *reinterpret_cast<const int4*>(s_positions + n * kMmaPositions + lane % 4 * 2);
    place[n][0] = pair.y + static_cast<int32_t>(s_stage), place[n][1] = pair.w + static_cast<int32_t>(s_stage);
  }
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) {
    int2 column[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) column[half] = s_columns[m * kMmaColumns + half * 8 + lane / 4];
#pragma unroll
    for (int n = 0; n < Traits::kPositionTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t to = place[n][i % 2] + column[i / 2].x;
        if (to >= 0) stage_element<Element>(to, element::add(r_acc[m][n][i], __int_as_float(column[i / 2].y)));
      }
    }
  }
}

// Fills W phases without taps with the bias, in rows whose H phase has taps.
template <typename Traits>
__device__ __forceinline__ void stage_empty_columns(const Params& params, const Pass& pass,
                                                    typename Traits::Element* s_stage) {
  using Element = typename Traits::Element;
  if (params.w.num_filled == params.w.out_stride) return;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t stride = params.w.out_stride, rows = pass.num_co * params.tile_h;
#pragma unroll 1
  for (int32_t index = static_cast<int32_t>(threadIdx.x) / 32; index < rows; index += params.warps) {
    const int32_t co = index / params.tile_h, row = index - co * params.tile_h;
    const Element empty = empty_of<Element>(params, pass, co);
#pragma unroll 1
    for (uint32_t phases = pass.filled_h; phases != 0; phases &= phases - 1) {
      const int32_t phase_h = __ffs(static_cast<int32_t>(phases)) - 1;
      Element* s_row = s_stage + mma_staged_row(params, pass.filled_h, co, row, phase_h);
#pragma unroll 1
      for (uint32_t columns = ~params.w.filled & ((1u << stride) - 1); columns != 0; columns &= columns - 1) {
        Element* s_column = s_row + __ffs(static_cast<int32_t>(columns)) - 1;
#pragma unroll 4
        for (int32_t q = lane; q < params.tile_w; q += 32) s_column[q * stride] = empty;
      }
    }
  }
}

// Tile-independent offsets of a run.
struct RunPlace {
  int32_t staged;  // element of column 0 in shared memory; -1: no taps
  int32_t co_row;  // channel << 16 | result row relative to the tile's first, in rows of the pass
};

template <typename Traits>
__device__ __forceinline__ void list_runs(const Params& params, const Pass& pass, RunPlace* s_runs) {
  const int32_t runs = params.tile_h * pass.num_phases_h * pass.num_co;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < runs; index += params.threads) {
    const int32_t row = index / pass.num_co, co = index - row * pass.num_co;
    const int32_t position_row = row / pass.num_phases_h, phase_h = row - position_row * pass.num_phases_h;
    const bool filled = (pass.filled_h >> phase_h & 1) != 0;
    s_runs[index] =
        RunPlace{filled ? mma_staged_row(params, pass.filled_h, co, position_row, phase_h) : -1, co << 16 | row};
  }
}

// A run of a tile in global and shared memory.
template <typename Traits>
struct Run {
  using Element = typename Traits::Element;
  int32_t row;      // of the result
  Element* global;  // column 0
  const Element* shared;
  bool filled;  // has taps
  bool exists;
  int32_t body;  // columns of its whole sectors of 32 bytes
  int32_t body_end;

  __device__ __forceinline__ Element at(int32_t column) const { return shared[filled ? column : 0]; }
};

template <typename Traits>
__device__ __forceinline__ Run<Traits> run_of(const Params& params, const TileStore& store, RunPlace place,
                                              const typename Traits::Element* s_stage, const unsigned char* s_biases) {
  using Element = typename Traits::Element;
  constexpr int32_t kSector = 2 * Traits::kVector;
  const int32_t co = place.co_row >> 16;
  // With split phases a pass computes every out_stride-th row.
  const int32_t row = (place.co_row & 0xffff) * (params.split_phases > 1 ? params.h.out_stride : 1);
  Run<Traits> run;
  run.row = store.row + row;
  run.exists = run.row >= 0 && run.row < params.h.out;
  run.global = static_cast<Element*>(params.result) + store.g_begin + co * params.result_stride[1] +
               row * params.result_stride[2];
  run.filled = place.staged >= 0;
  run.shared =
      run.filled ? s_stage + place.staged : reinterpret_cast<const Element*>(s_biases + co * params.bias_bytes);
  const int32_t at = static_cast<int32_t>(reinterpret_cast<uintptr_t>(run.global) / sizeof(Element)) & (kSector - 1);
  run.body = (store.column_begin + at + kSector - 1) / kSector * kSector - at;
  run.body_end = store.column_end - ((store.column_end + at) & (kSector - 1));
  return run;
}

// Copies the whole sectors of every run, one run per thread. One warp does this, or all warps if all threads load.
template <typename Traits>
__device__ __forceinline__ void store_bodies(const Params& params, int32_t runs, const TileStore& store,
                                             const RunPlace* s_runs, const typename Traits::Element* s_stage,
                                             const unsigned char* s_biases) {
  const bool one_warp = params.loaders < params.threads;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, warp = static_cast<int32_t>(threadIdx.x) / 32;
  // Adjacent runs go to different warps, because a warp issues its copies one by one.
  const int32_t first = one_warp ? lane : lane * params.warps + warp, step = one_warp ? 32 : params.threads;
#pragma unroll 1
  for (int32_t i = first; i < runs; i += step) {
    const Run<Traits> run = run_of<Traits>(params, store, s_runs[i], s_stage, s_biases);
    if (!run.exists) continue;
    int32_t bytes = (run.body_end - run.body) * static_cast<int32_t>(sizeof(typename Traits::Element));
    const int32_t most = run.filled ? bytes : params.bias_bytes;
    auto* g_body = reinterpret_cast<unsigned char*>(run.global + run.body);
    const uint32_t s_body = ptx::shared_address(run.filled ? run.shared + run.body : run.shared);
#pragma unroll 1
    for (; bytes > 0; bytes -= most, g_body += most) ptx::bulk_store(g_body, s_body, min(bytes, most));
  }
  ptx::bulk_commit();
}

// Stores the elements before and after a run's whole sectors. The loading threads do this, sixteen lanes per run. If
// rows are contiguous in memory, the end of a row and the start of the next are stored together as a whole sector.
template <typename Traits>
__device__ __forceinline__ void store_edges(const Params& params, const Pass& pass, int32_t runs,
                                            const TileStore& store, const RunPlace* s_runs,
                                            const typename Traits::Element* s_stage, const unsigned char* s_biases) {
  using Element = typename Traits::Element;
  constexpr int32_t kSector = 2 * Traits::kVector;
  const auto first = static_cast<int32_t>(reinterpret_cast<uintptr_t>(params.result) / sizeof(Element) + store.g_begin);
  if (params.aligned_runs && (first + store.column_begin) % kSector == 0 && (first + store.column_end) % kSector == 0) {
    return;
  }
  const int32_t edge = static_cast<int32_t>(threadIdx.x) % 16;
#pragma unroll 1
  for (int32_t i = threadIdx.x / 16; i < runs; i += params.loaders / 16) {
    const Run<Traits> run = run_of<Traits>(params, store, s_runs[i], s_stage, s_biases);
    if (!run.exists) continue;
    const bool joins_previous = params.joined_rows && i >= pass.num_co && run.row > 0;
    const bool joins_next = params.joined_rows && i + pass.num_co < runs && run.row + 1 < params.h.out;
    const int32_t head = store.column_begin + edge;
    if (!joins_previous && head < min(run.body, store.column_end)) run.global[head] = run.at(head);
    const int32_t tail = max(run.body_end, run.body) + edge;
    const bool own = tail < store.column_end;
    // If a joined row ends within a sector, elements of the next row complete the sector.
    if (own || (joins_next && run.body_end < store.column_end && edge < kSector)) {
      Element value;
      if (own) {
        value = run.at(tail);
      } else {
        const Run<Traits> next = run_of<Traits>(params, store, s_runs[i + pass.num_co], s_stage, s_biases);
        value = next.at(store.column_begin + tail - store.column_end);
      }
      run.global[tail] = value;
    }
  }
}

#endif

}  // namespace convt::mma_sm90a
