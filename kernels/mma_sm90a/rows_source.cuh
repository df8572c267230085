// mma_rows: the results of a CTA, its units, and their source: global memory -> registers, as operand B.
#pragma once

#include "mma_sm90a/rows_layout.h"
#include "mma_sm90a/traits.cuh"
#include "ptx/global.cuh"
#include "tiling/tile.cuh"

namespace convt::mma_sm90a {

using tiling::Tile;
using tiling::tile_of;

// The properties that all tiles of a CTA share.
struct Pass {
  int32_t group;
  int32_t co;  // first result channel within the group
  int32_t num_co;
  int32_t first_tile;
  int32_t end_tile;
};

__device__ __forceinline__ Pass pass_of_block(const Params& params) {
  Pass pass;
  int32_t index = static_cast<int32_t>(blockIdx.x) / params.passes;
  pass.first_tile = static_cast<int32_t>(int64_t{index} * params.num_tiles / params.blocks_per_pass);
  pass.end_tile = static_cast<int32_t>(int64_t{index + 1} * params.num_tiles / params.blocks_per_pass);
  index = static_cast<int32_t>(blockIdx.x) % params.passes;
  pass.co = index % params.co_tiles * params.block_co;
  pass.num_co = min(params.block_co, params.group_co - pass.co);
  pass.group = index / params.co_tiles;
  return pass;
}

// Element offset of a row of the tile's image in the result, for the pass's first channel.
__device__ __forceinline__ int64_t result_row(const Params& params, const Pass& pass, const Tile& tile, int32_t row) {
  return tile.image * params.result_stride[0] +
         (int64_t{pass.group} * params.group_co + pass.co) * params.result_stride[1] + row * params.result_stride[2];
}

template <DataType kDataTypeValue, int kColumnTilesValue, int kPositionTilesValue>
struct RowsTraits : Traits<kDataTypeValue, kColumnTilesValue, kPositionTilesValue> {
  using Base = Traits<kDataTypeValue, kColumnTilesValue, kPositionTilesValue>;
  // Channels per lane; a word of an operand contains one or two.
  static constexpr int kChannels = Base::kPlaneChannels;
  static constexpr int kWords = sizeof(typename Base::Element);  // per four positions of a channel
  static constexpr int kBatch = mma_rows_batch(sizeof(typename Base::Element));
};

#ifdef CONVT_HAS_WGMMA

// Tiles of a CTA. With `interleaved`, concurrent CTAs of a pass process adjacent tiles.
struct RowsTiles {
  int32_t first;
  int32_t step;
  int32_t count;

  __device__ __forceinline__ int32_t operator[](int32_t number) const { return first + number * step; }
};

__device__ __forceinline__ RowsTiles rows_tiles(const Params& params, const Pass& pass) {
  if (!params.interleaved) return RowsTiles{pass.first_tile, 1, pass.end_tile - pass.first_tile};
  const int32_t first = static_cast<int32_t>(blockIdx.x) / params.passes;
  return RowsTiles{first, params.blocks_per_pass,
                   (params.num_tiles - first + params.blocks_per_pass - 1) / params.blocks_per_pass};
}

// Element offset of the tile's first row in the result, for the pass's first channel. The row may be before the image.
__device__ __forceinline__ int64_t rows_origin(const Params& params, const Pass& pass, const Tile& tile) {
  return result_row(params, pass, tile, tile.q_h * params.h.out_stride - params.h.out_origin);
}

// Shift of a tile within its slot, so that it has the same offset in a sector as in global memory.
__device__ __forceinline__ int32_t rows_shift(const Params& params, int64_t origin) {
  return static_cast<int32_t>(origin & (params.result_vector - 1));
}

// A step of K of one tap.
struct RowsStep {
  int32_t weight;  // byte offset of its fragments from the unit's first
  uint32_t mask;   // bit m: column tile m of the unit uses the tap
};

// A group of loads: the source of a run of taps, for one row of taps and one step of channels.
struct RowsGroup {
  int32_t offset;  // source elements from a position's first channel
  int32_t row, column;
  int32_t taps_channels;  // taps << 16 | channels
};

struct RowsUnit {
  int32_t tile;  // index among the CTA's tiles
  int32_t column_unit;
  int32_t q_h;
  int32_t q_w;  // first position
  int32_t staged;  // slot element of its row's column 0
  const void* source;  // the lane's first position and channel
};

// Loaded words of a batch of groups: a lane's channels at four adjacent positions, one per position tile, and at the
// position before them.
template <typename Traits>
struct RowsSource {
  uint32_t four[Traits::kBatch][Traits::kChannels][Traits::kWords];
  uint32_t before[Traits::kBatch][Traits::kChannels];
};

template <typename Traits>
__device__ __forceinline__ RowsUnit rows_unit_of(const Params& params, const Pass& pass, const RowsTiles& tiles,
                                                 int32_t index) {
  using Element = typename Traits::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  RowsUnit unit;
  int32_t number, column;
  unit.tile = params.by_units(index, &number);
  const int32_t position = params.by_unit_columns(number, &unit.column_unit);
  const int32_t row = params.by_units_w(position, &column);
  const Tile tile = tile_of(params, tiles[unit.tile]);
  unit.q_h = tile.q_h + row;
  unit.q_w = tile.q_w + column * Traits::kUnitPositions;
  unit.staged = rows_shift(params, rows_origin(params, pass, tile)) + row * params.row_step;
  const int64_t channel = int64_t{pass.group} * params.group_ci + lane % 4 * Traits::kChannels;
  unit.source = static_cast<const Element*>(params.source) + tile.image * params.source_stride[0] +
                channel * params.source_stride[1] + unit.q_h * params.source_stride[2] + unit.q_w + lane / 4 * 4;
  return unit;
}

// Loads the lane's four positions of a channel one by one.
template <typename Traits>
__device__ __forceinline__ void load_four_elements(uint32_t (&r_four)[Traits::kWords],
                                                   const typename Traits::Element* g_from, int32_t column,
                                                   int32_t end) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool inside = static_cast<uint32_t>(column + j) < static_cast<uint32_t>(end);
    if constexpr (Traits::kWords == 4) {
      r_four[j] = ptx::load_global_or_zero(g_from + j, inside);
    } else {
      const uint32_t half = ptx::load_global_16_or_zero(g_from + j, inside);
      r_four[j / 2] = j % 2 == 0 ? half : r_four[j / 2] | half << 16;
    }
  }
}

template <typename Traits, bool kVectors>
__device__ __forceinline__ void load_rows_source(const Params& params, const RowsUnit& unit, const RowsGroup* s_groups,
                                                 int32_t groups, RowsSource<Traits>& r_source) {
  using Element = typename Traits::Element;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t q_w = unit.q_w + lane / 4 * 4, channel = lane % 4 * Traits::kChannels;
#pragma unroll
  for (int b = 0; b < Traits::kBatch; ++b) {
    if (b >= groups) break;
    const int4 group = *reinterpret_cast<const int4*>(s_groups + b);
    const bool row = static_cast<uint32_t>(unit.q_h + group.y) < static_cast<uint32_t>(params.h.in);
    const int32_t channels = row ? (group.w & 0xffff) - channel : 0;
    const int32_t column = q_w + group.z;
    const bool inside = static_cast<uint32_t>(column) < static_cast<uint32_t>(params.w.in);
    const bool before = static_cast<uint32_t>(column - 1) < static_cast<uint32_t>(params.w.in) && group.w >= 2 << 16;
    const auto* g_from = static_cast<const Element*>(unit.source) + group.x;
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) {
      if constexpr (kVectors) {
        ptx::load_global_or_zero(r_source.four[b][c], g_from, inside && c < channels);
      } else {
        load_four_elements<Traits>(r_source.four[b][c], g_from, column, c < channels ? params.w.in : 0);
      }
      if constexpr (Traits::kWords == 4) {
        r_source.before[b][c] = ptx::load_global_or_zero(g_from - 1, before && c < channels);
      } else {
        r_source.before[b][c] = ptx::load_global_16_or_zero(g_from - 1, before && c < channels);
      }
      g_from += params.source_stride[1];
    }
  }
}

// Makes operand B of group b for tap number `tap` of its run, which reads `tap` columns before the first.
template <typename Traits>
__device__ __forceinline__ void make_rows_operand(uint32_t (&r_operand)[Traits::kPositionTiles][2],
                                                  const RowsSource<Traits>& r_source, int b, int tap) {
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    const int at = n - tap;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if constexpr (Traits::kWords == 4) {
        const uint32_t word = at < 0 ? r_source.before[b][k] : r_source.four[b][k][at < 0 ? 0 : at];
        r_operand[n][k] = __float_as_uint(ptx::round_tf32(__uint_as_float(word)));
      } else {
        const uint32_t one = at < 0 ? r_source.before[b][2 * k] : r_source.four[b][2 * k][at < 0 ? 0 : at / 2];
        const uint32_t other =
            at < 0 ? r_source.before[b][2 * k + 1] : r_source.four[b][2 * k + 1][at < 0 ? 0 : at / 2];
        r_operand[n][k] = __byte_perm(one, other, at >= 0 && at % 2 == 1 ? 0x7632 : 0x5410);
      }
    }
  }
}

// Multiplies a batch of groups. Returns its number of steps.
template <typename Traits>
__device__ __forceinline__ int32_t multiply_rows_batch(Accumulators<Traits>& r_acc, const RowsSource<Traits>& r_source,
                                                       const RowsGroup* s_groups, int32_t groups,
                                                       const RowsStep* s_steps, uint32_t s_weights) {
  int32_t number = 0;
#pragma unroll
  for (int b = 0; b < Traits::kBatch; ++b) {
    if (b >= groups) break;
    const int32_t taps = s_groups[b].taps_channels >> 16;
#pragma unroll
    for (int tap = 0; tap < kMmaRowsRun; ++tap) {
      if (tap >= taps) break;
      const int2 step = *reinterpret_cast<const int2*>(s_steps + number++);
      uint32_t r_weight[Traits::kColumnTiles][4], r_operand[Traits::kPositionTiles][2];
#pragma unroll
      for (int m = 0; m < Traits::kColumnTiles; ++m) ptx::load_shared(r_weight[m], s_weights + step.x + m * 512);
      make_rows_operand<Traits>(r_operand, r_source, b, tap);
#pragma unroll
      for (int m = 0; m < Traits::kColumnTiles; ++m) {
        if ((step.y >> m & 1) == 0) continue;
#pragma unroll
        for (int n = 0; n < Traits::kPositionTiles; ++n) Traits::multiply(r_acc[m][n], r_weight[m], r_operand[n]);
      }
    }
  }
  return number;
}

#endif

}  // namespace convt::mma_sm90a
