// Kernel of the mma family: forward pass of layers with few channels, with mma.sync. A CTA keeps the weights of a
// *pass* in shared memory and iterates over tiles of positions. It copies a source tile, converts it to planes of
// channels, multiplies all taps of all phases, collects the results in shared memory and stores them as contiguous
// runs. Copies of the next source tiles overlap this. Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "mma_sm90a/loader.cuh"
#include "mma_sm90a/mainloop.cuh"
#include "mma_sm90a/store.cuh"
#include "ptx/mbarrier_sm90.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Lists the columns: (channel << 16 | H phase << 8 | W phase), and the taps of their classes (along H << 16 | along W).
__device__ __forceinline__ void list_columns(const Params& params, const Pass& pass, int2* s_list) {
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.column_tiles * kMmaColumns; index += params.threads) {
    const MmaColumn column = mma_column(params, pass.phase_h, index);
    s_list[index] = make_int2(column.co << 16 | column.phase_h << 8 | column.phase_w,
                              static_cast<int32_t>(column.taps_h << 16 | column.taps_w));
  }
}

// Fills the tables of columns: their offsets in the results and biases, and the offsets of their weights for each tap.
template <typename Traits>
__device__ __forceinline__ void place_columns(const Params& params, const Pass& pass, const int2* s_list,
                                              int2* s_columns, int32_t* s_places) {
  using Element = typename Traits::Element;
  const int32_t columns = params.column_tiles * kMmaColumns;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < columns * params.taps; index += params.threads) {
    const int32_t tap = index / columns, number = index - tap * columns;
    const int32_t column = s_list[number].x;
    const int32_t co = column >> 16, phase_h = column >> 8 & 0xff, phase_w = column & 0xff;
    s_places[index] = weight_place(params, pass, tap, co, phase_h, phase_w);
    if (tap > 0) continue;
    const int32_t staged = mma_staged_row(params, pass.filled_h, co, 0, phase_h - pass.phase_h) + phase_w;
    s_columns[number] = co < pass.num_co ? make_int2(staged * static_cast<int32_t>(sizeof(Element)),
                                                     __float_as_int(bias_of<Element>(params, pass, co)))
                                         : make_int2(kNowhere, 0);
  }
}

// Fills the tables of positions (offsets in the operand and in the results) and of steps of K per column unit, and the
// rows of repeated biases.
template <typename Traits>
__device__ __forceinline__ void make_tables(const Params& params, const Pass& pass, const int2* s_list,
                                            int2* s_positions, Step* s_steps, unsigned char* s_biases) {
  using Element = typename Traits::Element;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.position_units * Traits::kUnitPositions; index += params.threads) {
    int32_t column;
    const int32_t row = params.by_tile_w(index, &column);
    s_positions[index] =
        index < params.positions
            ? make_int2((row * params.pitch + params.column_begin + column) * 8,
                        (row * params.stage_row + column * params.w.out_stride) * static_cast<int32_t>(sizeof(Element)))
            : make_int2(params.column_begin * 8, kNowhere);
  }
  const int32_t steps = params.taps * params.chunk_steps;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.column_units * steps; index += params.threads) {
    const int32_t unit = index / steps, number = index - unit * steps;
    const int32_t tap = number / params.chunk_steps, step = number - tap * params.chunk_steps;
    const int32_t t_h = tap / params.w.num_taps, t_w = tap - t_h * params.w.num_taps;
    const int32_t place = (params.h.offset[t_h] - params.h.least_offset) * params.pitch + params.w.offset[t_w] -
                          params.w.least_offset + 4 * step * params.plane;
    uint32_t mask = 0;
#pragma unroll
    for (int j = 0; j < Traits::kColumnTiles; ++j) {
      const auto taps = static_cast<uint32_t>(s_list[(unit * Traits::kColumnTiles + j) * kMmaColumns].y);
      mask |= (taps >> (16 + t_h) & taps >> t_w & 1) << j;
    }
    s_steps[index] = Step{static_cast<uint32_t>(place * 8), mask};
  }
  const int32_t elements = params.bias_bytes / static_cast<int32_t>(sizeof(Element));
  if (elements == 0) return;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < pass.num_co * elements; index += params.threads) {
    reinterpret_cast<Element*>(s_biases)[index] = empty_of<Element>(params, pass, index / elements);
  }
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(kMaxMmaThreads, 2) forward(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename Traits::Element;
  extern __shared__ __align__(16) unsigned char s_bytes[];
  __shared__ TileStore s_stores[2];  // current and previous tile
  auto* s_stage = s_bytes + params.stage_begin;
  auto* s_biases = s_bytes + params.bias_begin;
  auto* s_columns = reinterpret_cast<int2*>(s_bytes + params.column_begin_bytes);
  auto* s_positions = reinterpret_cast<int2*>(s_bytes + params.position_begin);
  auto* s_runs = reinterpret_cast<RunPlace*>(s_bytes + params.run_begin);
  auto* s_steps = reinterpret_cast<Step*>(s_bytes + params.step_begin);
  const uint32_t s_raw = ptx::shared_address(s_bytes), s_operand = s_raw + params.operand_begin;
  const uint32_t s_weights = s_raw + params.weight_begin;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);

  const Pass pass = pass_of_block(params);
  const int32_t num_chunks = pass.filled_h != 0 ? params.num_chunks : 1;
  // The next stage to load, and its slot.
  const bool loads = static_cast<int32_t>(threadIdx.x) < params.loaders;
  const bool stores = warp == params.warps - 1 || params.loaders == params.threads;
  int32_t next_tile = pass.first_tile, next_chunk = 0, slot = 0;
  auto load_next = [&](int32_t to) {
    if (!loads) return;
    if (pass.filled_h != 0 && next_tile < pass.end_tile) {
      load_raw<Traits>(params, pass, tile_of(params, next_tile), next_chunk, s_raw + to * params.raw_bytes);
      if (++next_chunk == num_chunks) next_chunk = 0, ++next_tile;
    }
    ptx::cp_async_commit();
  };
  for (int32_t i = 0; i < params.raw_slots; ++i) load_next(i);
  // While weights are loaded, the list of columns uses the memory of the results.
  auto* s_list = reinterpret_cast<int2*>(s_stage);
  auto* s_places = reinterpret_cast<int32_t*>(s_list + params.column_tiles * kMmaColumns);
  list_columns(params, pass, s_list);
  list_runs<Traits>(params, pass, s_runs);
  __syncthreads();  // the list of columns is complete
  place_columns<Traits>(params, pass, s_list, s_columns, s_places);
  make_tables<Traits>(params, pass, s_list, s_positions, s_steps, s_biases);
  __syncthreads();  // the places are complete
  if (pass.filled_h != 0) load_weights<Traits>(params, pass, s_bytes + params.weight_begin, s_places);
  __syncthreads();  // the lists may be overwritten

  const int32_t runs = params.tile_h * pass.num_phases_h * pass.num_co;
  int32_t staged_shift = -1;
#pragma unroll 1
  for (int32_t index = pass.first_tile; index < pass.end_tile; ++index) {
    TileStore* s_store = s_stores + (index & 1);
    if (threadIdx.x == 0) *s_store = make_tile_store<Traits>(params, pass, tile_of(params, index));
    if (pass.filled_h == 0) __syncthreads();  // all threads may read *s_store
    Accumulators<Traits> r_acc;
#pragma unroll 1
    for (int32_t chunk = 0; chunk < num_chunks && pass.filled_h != 0; ++chunk) {
      if (loads) {
        if (params.raw_slots == 1) {
          ptx::cp_async_wait<0>();
        } else {
          ptx::cp_async_wait<1>();
        }
        // The raw stage is complete. With several chunks all threads are loaders, and they have finished the products
        // of the previous stage. Between tiles, the barrier of the results guarantees that.
        ptx::named_barrier(1, params.loaders);
        make_operand<Traits>(params, chunk, s_raw + slot * params.raw_bytes, s_operand);
      }
      if (stores && chunk == num_chunks - 1) ptx::bulk_wait_read();
      __syncthreads();  // the operand is complete; the previous tile is stored
      load_next(slot);
      slot = slot + 1 == params.raw_slots ? 0 : slot + 1;
#pragma unroll 1
      for (int32_t unit = warp; unit < params.column_units * params.position_units; unit += params.warps) {
        const int32_t column_unit = unit / params.position_units;
        const int32_t position_unit = unit - column_unit * params.position_units;
        const int2* s_unit_positions = s_positions + position_unit * Traits::kUnitPositions;
        uint32_t s_position[Traits::kPositionTiles];
#pragma unroll
        for (int n = 0; n < Traits::kPositionTiles; ++n) {
          s_position[n] = s_operand + lane % 4 * params.plane * 8 + s_unit_positions[n * kMmaPositions + lane / 4].x;
        }
        if (chunk == 0) element::clear(r_acc);
        const int32_t steps = params.taps * params.chunk_steps;
        const int32_t fragment = chunk * steps * params.column_tiles + column_unit * Traits::kColumnTiles;
        multiply<Traits>(r_acc, steps, s_steps + column_unit * steps, s_position,
                         s_weights + (fragment * 32 + lane) * 16, params.column_tiles * 512);
        if (chunk == num_chunks - 1) {
          stage_unit<Traits>(r_acc, s_columns + column_unit * Traits::kUnitColumns, s_unit_positions,
                             ptx::shared_address(s_stage) + s_store->shift * static_cast<uint32_t>(sizeof(Element)));
        }
      }
    }
    auto* s_results = reinterpret_cast<Element*>(s_stage) + s_store->shift;
    if (staged_shift != s_store->shift) {
      stage_empty_columns<Traits>(params, pass, s_results);
      staged_shift = s_store->shift;
    }
    ptx::fence_proxy_async();
    __syncthreads();  // the results are complete
    if (stores) store_bodies<Traits>(params, runs, *s_store, s_runs, s_results, s_biases);
    if (loads) store_edges<Traits>(params, pass, runs, *s_store, s_runs, s_results, s_biases);
  }
  ptx::bulk_wait_read();  // shared memory must stay valid until the stores have read it
#endif
}

}  // namespace convt::mma_sm90a
