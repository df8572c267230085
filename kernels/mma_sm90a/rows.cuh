// Kernel of the mma_rows family: forward pass of layers with few channels, by tiles of whole rows. A tile's rows of a
// channel are contiguous in global and in shared memory, including rows without taps, so that one bulk copy stores a
// channel. Elements without taps are filled once. Consumer warps process units independently and load the source from
// global memory into registers. Two warps store. Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "mma_sm90a/rows_source.cuh"
#include "mma_sm90a/rows_store.cuh"
#include "mma_sm90a/rows_weights.cuh"
#include "pipeline/ring.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

inline constexpr int32_t kNoPhase = -(1 << 28);  // outside every row, also when converted to bytes

// A column's offsets in the shared-memory results.
struct RowsColumn {
  int32_t place;    // bytes from column 0 of the tile's first row
  int32_t phase_w;  // kNoPhase: this column is padding
  float bias;
  int32_t unused;  // pads to 16 bytes, for one vector load
};

// Fills the tables: columns, offsets of their weights for each tap, groups of loads, steps of K of each group.
template <typename Traits>
__device__ __forceinline__ void make_rows_tables(const Params& params, const Pass& pass, RowsColumn* s_columns,
                                                 int32_t* s_places, RowsStep* s_steps, RowsGroup* s_groups) {
  using Element = typename Traits::Element;
  const int32_t columns = params.column_tiles * kMmaColumns;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < columns * params.taps; index += params.threads) {
    const int32_t tap = index / columns, number = index - tap * columns;
    const MmaColumn column = mma_column(params, number);
    s_places[index] = weight_place(params, pass, tap, column.co, column.phase_h, column.phase_w);
    if (tap > 0) continue;
    const int32_t place = column.co * params.stage_channel + column.phase_h * params.w.out;
    s_columns[number] = column.co < pass.num_co
                            ? RowsColumn{place * static_cast<int32_t>(sizeof(Element)), column.phase_w,
                                         bias_of<Element>(params, pass, column.co), 0}
                            : RowsColumn{0, kNoPhase, 0, 0};
  }
  // Rows of taps, steps of channels, runs of taps along W.
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.groups_of_steps; index += params.threads) {
    const int32_t row_step = index / params.runs_w, t_h = row_step / params.steps;
    const int32_t step = row_step - t_h * params.steps, first = step * Traits::kStepElements;
    const MmaRun run = mma_run(params.w, index - row_step * params.runs_w);
    RowsGroup group;
    group.row = params.h.offset[t_h];
    group.column = params.w.offset[run.first];
    group.offset =
        static_cast<int32_t>(first * params.source_stride[1] + group.row * params.source_stride[2]) + group.column;
    group.taps_channels = run.taps << 16 | min(params.group_ci - first, Traits::kStepElements);
    s_groups[index] = group;
  }
  const int32_t steps = params.taps * params.steps;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.column_units * steps; index += params.threads) {
    const int32_t unit = index / steps, number = index - unit * steps;
    const int32_t row_step = number / params.w.num_taps, t_w = number - row_step * params.w.num_taps;
    const int32_t t_h = row_step / params.steps, step = row_step - t_h * params.steps;
    uint32_t mask = 0;
#pragma unroll
    for (int j = 0; j < Traits::kColumnTiles; ++j) {
      const MmaColumn column = mma_column(params, (unit * Traits::kColumnTiles + j) * kMmaColumns);
      mask |= (column.taps_h >> t_h & column.taps_w >> t_w & 1) << j;
    }
    s_steps[index] =
        RowsStep{((t_h * params.w.num_taps + t_w) * params.steps + step) * params.column_tiles * 512, mask};
  }
}

// Writes the results of a unit, with the bias, to shared memory. A lane holds eight adjacent positions of a column.
template <typename Traits, bool kInside>
__device__ __forceinline__ void stage_rows_columns(const Params& params, const Accumulators<Traits>& r_acc,
                                                   const RowsColumn* s_columns, int32_t column, uint32_t s_row) {
  using Element = typename Traits::Element;
  constexpr int32_t kBytes = sizeof(Element);
  static_assert(Traits::kPositionTiles == 4);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t step = params.w.out_stride * kBytes;
  const int32_t first = column * kBytes + lane % 4 * 8 * step;  // from the row's beginning
  const auto end = static_cast<uint32_t>(params.w.out) * kBytes;
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int4 entry = *reinterpret_cast<const int4*>(s_columns + m * kMmaColumns + half * 8 + lane / 4);
      if (kInside && entry.y == kNoPhase) continue;
      int32_t at = first + entry.y * kBytes;
      const uint32_t s_to = s_row + entry.x;
#pragma unroll
      for (int p = 0; p < 8; ++p) {
        if (kInside || static_cast<uint32_t>(at) < end) {
          stage_element<Element>(s_to + at, element::add(r_acc[m][p % 4][half * 2 + p / 4], __int_as_float(entry.z)));
        }
        at += step;
      }
    }
  }
}

template <typename Traits>
__device__ __forceinline__ void stage_rows_unit(const Params& params, const RowsUnit& unit,
                                                const Accumulators<Traits>& r_acc, const RowsColumn* s_columns,
                                                uint32_t s_slot) {
  const RowsColumn* s_unit_columns = s_columns + unit.column_unit * Traits::kUnitColumns;
  const int32_t column = unit.q_w * params.w.out_stride - params.w.out_origin;
  const uint32_t s_row = s_slot + unit.staged * static_cast<int32_t>(sizeof(typename Traits::Element));
  if (column >= 0 && column + Traits::kUnitPositions * params.w.out_stride <= params.w.out) {
    stage_rows_columns<Traits, true>(params, r_acc, s_unit_columns, column, s_row);
  } else {
    stage_rows_columns<Traits, false>(params, r_acc, s_unit_columns, column, s_row);
  }
}

// Consumer loop over units, in batches of groups of loads. A unit's results are written to shared memory while the next
// unit's first loads are in flight.
template <typename Traits>
__device__ __forceinline__ void multiply_rows(const Params& params, const Pass& pass, const RowsTiles& tiles,
                                              uint32_t s_slots, uint32_t s_weights, const RowsColumn* s_columns,
                                              const RowsStep* s_steps, const RowsGroup* s_groups, uint32_t s_barriers,
                                              int32_t warp) {
  const int32_t warps = params.warps - kMmaRowsStorers, groups = params.groups_of_steps;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t end = tiles.count * params.units;
  RowsUnit unit{};
  Accumulators<Traits> r_acc;
  const RowsStep* s_unit_steps = s_steps;
  uint32_t s_unit_weights = s_weights;
  int32_t index = warp - warps, group = groups;
#pragma unroll 1
  for (;;) {
    const bool done = group >= groups;
    const RowsUnit last = unit;
    if (done) {
      index += warps, group = 0;
      if (index < end) unit = rows_unit_of<Traits>(params, pass, tiles, index);
    }
    RowsSource<Traits> r_source;
    if (index < end) {
      if (params.vector > 1) {
        load_rows_source<Traits, true>(params, unit, s_groups + group, groups - group, r_source);
      } else {
        load_rows_source<Traits, false>(params, unit, s_groups + group, groups - group, r_source);
      }
    }
    if (done) {
      if (index >= warps) {
        int32_t slot;
        const int32_t round = params.by_slots(last.tile, &slot);
        const uint32_t s_full = s_barriers + slot * 16, s_empty = s_full + 8;
        if (round > 0) ptx::mbarrier_wait(s_empty, (round - 1) & 1);
        stage_rows_unit<Traits>(
            params, last, r_acc, s_columns,
            s_slots + slot * params.slot_elements * static_cast<int32_t>(sizeof(typename Traits::Element)));
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(s_full);
      }
      if (index >= end) break;
      s_unit_steps = s_steps + unit.column_unit * params.taps * params.steps;
      s_unit_weights = s_weights + (unit.column_unit * Traits::kColumnTiles * 32 + lane) * 16;
      element::clear(r_acc);
    }
    s_unit_steps +=
        multiply_rows_batch<Traits>(r_acc, r_source, s_groups + group, groups - group, s_unit_steps, s_unit_weights);
    group += Traits::kBatch;
  }
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(kMaxMmaRowsWarps * 32) forward_rows(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename Traits::Element;
  extern __shared__ __align__(16) unsigned char s_bytes[];
  auto* s_columns = reinterpret_cast<RowsColumn*>(s_bytes + params.column_begin_bytes);
  auto* s_steps = reinterpret_cast<RowsStep*>(s_bytes + params.step_begin);
  auto* s_groups = reinterpret_cast<RowsGroup*>(s_bytes + params.group_begin);
  const uint32_t s_slots = ptx::shared_address(s_bytes), s_barriers = s_slots + params.barriers_begin;
  const Pass pass = pass_of_block(params);

  // While weights are loaded, their offsets use the memory of the slots.
  auto* s_places = reinterpret_cast<int32_t*>(s_bytes);
  make_rows_tables<Traits>(params, pass, s_columns, s_places, s_steps, s_groups);
  if (threadIdx.x == 0) {
    pipeline::init_slots(s_barriers, 0, params.slots, 32 * params.units, 32);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the places are complete
  load_weights<Traits>(params, pass, s_bytes + params.weight_begin, s_places);
  __syncthreads();  // the places may be overwritten
  const RowsTiles tiles = rows_tiles(params, pass);
#pragma unroll 1
  for (int32_t slot = 0; slot < min(params.slots, tiles.count); ++slot) {
    const int32_t shift = rows_shift(params, rows_origin(params, pass, tile_of(params, tiles[slot])));
    fill_slot<Traits>(params, pass, reinterpret_cast<Element*>(s_bytes) + slot * params.slot_elements + shift,
                      threadIdx.x, params.threads);
  }
  ptx::fence_proxy_async();
  __syncthreads();  // every slot is filled with biases

  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t storer = warp - (params.warps - kMmaRowsStorers);
  if (storer < 0) {
    multiply_rows<Traits>(params, pass, tiles, s_slots, s_slots + params.weight_begin, s_columns, s_steps, s_groups,
                          s_barriers, warp);
  } else {
    store_rows<Traits>(params, pass, tiles, reinterpret_cast<Element*>(s_bytes), s_barriers, storer);
  }
#endif
}

}  // namespace convt::mma_sm90a
