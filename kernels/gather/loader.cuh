// Copies global memory to shared memory: tables of a tile's positions and taps, then stages of source and weights.
// Nonexistent terms are not loaded, because the mainloop never multiplies them.
#pragma once

#include "gather/layout.h"
#include "ptx/cp_async.cuh"

namespace convt::gather {

// The results of a CTA.
struct ResultTile {
  int32_t group;
  int32_t phase_h;
  int32_t phase_w;
  int32_t position;  // first position
  int32_t channel;  // first channel, within the group
};

__device__ __forceinline__ ResultTile result_tile(const GatherParams& layout) {
  ResultTile tile;
  int32_t phase;
  int32_t rest = layout.by_channel_tiles(static_cast<int32_t>(blockIdx.x), &tile.channel);
  rest = layout.by_phases(rest, &phase);
  tile.group = layout.by_position_tiles(rest, &tile.position);
  tile.phase_h = layout.by_phases_w(phase, &tile.phase_w);
  tile.channel *= layout.block_channels;
  tile.position *= layout.block_positions;
  return tile;
}

// A position of a phase.
struct TiledPosition {
  int32_t image, row, column;
};

// Coordinates and offsets of a position in source and result.
struct TiledPlace {
  int32_t source_row, source_column;  // coordinates that the first tap reads
  int32_t source;  // element offset that the first tap reads; may be outside the image
  int32_t result;  // element offset, or -1 if the position has no result

  __device__ __forceinline__ TiledPlace(const GatherParams& layout, const ResultTile& tile, const Phase& h,
                                        const Phase& w, const TiledPosition& position)
      : source_row(position.row * layout.row_step + h.first_shift),
        source_column(position.column * layout.column_step + w.first_shift) {
    const int32_t result_row = position.row * layout.by_phases_h.value + tile.phase_h;
    const int32_t result_column = position.column * layout.by_phases_w.value + tile.phase_w;
    source = position.image * static_cast<int32_t>(layout.source_stride[0]) +
             source_row * static_cast<int32_t>(layout.source_stride[2]) +
             source_column * static_cast<int32_t>(layout.source_stride[3]);
    result = position.image * static_cast<int32_t>(layout.result_stride[0]) +
             result_row * static_cast<int32_t>(layout.result_stride[2]) +
             result_column * static_cast<int32_t>(layout.result_stride[3]);
    if (result_row >= layout.result_rows || result_column >= layout.result_columns) result = -1;
  }
};

// A term of a stage. Offsets are relative to the first term of a position or result channel. Places are byte offsets in
// a stage's sources or weights.
struct GatherTerm {
  int32_t source;  // elements
  uint32_t source_place;
  int32_t weight;  // elements
  uint32_t weight_place;  // byte offset; the upper 12 bits contain the tap

  static constexpr int kPlaceBits = 20;

  __device__ __forceinline__ int32_t tap() const { return static_cast<int32_t>(weight_place >> kPlaceBits); }
};

// Tables of a tile in shared memory.
struct GatherTables {
  int32_t* s_source;  // [table_positions]: element offset that the first tap reads; may be outside the image
  int32_t* s_result;  // [table_positions]: element offset in the result, or -1 if there is no position
  uint32_t* s_bits;   // [taps][table_positions / 32]: bit mask of positions that have the tap
  GatherTerm* s_terms;  // [chunk_ci * taps]: neighbouring entries are contiguous in memory

  __device__ __forceinline__ GatherTables(const GatherParams& params, unsigned char* s_bytes)
      : s_source(reinterpret_cast<int32_t*>(s_bytes)),
        s_result(s_source + params.table_positions),
        s_bits(reinterpret_cast<uint32_t*>(s_bytes + params.bits_begin)),
        s_terms(reinterpret_cast<GatherTerm*>(s_bytes + params.terms_begin)) {}

  // Returns whether all positions that this thread described exist and have all taps.
  __device__ __forceinline__ bool fill(const GatherParams& params, const ResultTile& tile, const Phase& h,
                                       const Phase& w) const {
    const auto thread = static_cast<int32_t>(threadIdx.x), threads = static_cast<int32_t>(blockDim.x);
    const auto row_stride = static_cast<int32_t>(params.source_stride[2]);
    const auto column_stride = static_cast<int32_t>(params.source_stride[3]);
    const int32_t taps = h.num_taps * w.num_taps;
#pragma unroll 1
    for (int32_t term = thread; term < params.chunk_ci * taps; term += threads) {
      const int32_t outer = term / (params.by_channels ? params.chunk_ci : taps);
      const int32_t inner = term - outer * (params.by_channels ? params.chunk_ci : taps);
      const int32_t ci = params.by_channels ? inner : outer, tap = params.by_channels ? outer : inner;
      const int32_t k_h = tap / w.num_taps, k_w = tap - k_h * w.num_taps;
      GatherTerm& s_term = s_terms[term];
      s_term.source = ci * static_cast<int32_t>(params.source_stride[1]) - k_h * h.shift_step * row_stride -
                      k_w * w.shift_step * column_stride;
      s_term.source_place = static_cast<uint32_t>(4 * (ci * params.source_pitch + tap * params.block_positions));
      s_term.weight = ci * params.weight_stride[0] + k_h * h.tap_step * params.weight_stride[2] +
                      k_w * w.tap_step * params.weight_stride[3];
      s_term.weight_place = static_cast<uint32_t>(4 * (ci * params.weight_channel_pitch + tap * params.weight_pitch) |
                                                  tap << GatherTerm::kPlaceBits);
    }
    bool complete = true;
    const int32_t words = params.table_positions / 32;
#pragma unroll 1
    for (int32_t m = thread; m < params.table_positions; m += threads) {
      TiledPosition position;
      const int32_t number = tile.position + m;
      position.image = params.by_rows(params.by_columns(number, &position.column), &position.row);
      const TiledPlace place(params, tile, h, w, position);
      const bool exists = m < params.block_positions && number < params.num_positions && place.result >= 0;
      s_source[m] = place.source;
      s_result[m] = exists ? place.result : -1;
      int32_t word = m / 32;
#pragma unroll 1
      for (int32_t k_h = 0; k_h < h.num_taps; ++k_h) {
        const bool row_inside =
            exists && static_cast<uint32_t>(place.source_row - k_h * h.shift_step) < static_cast<uint32_t>(params.rows);
#pragma unroll 2
        for (int32_t k_w = 0; k_w < w.num_taps; ++k_w, word += words) {
          const bool has_tap = row_inside && static_cast<uint32_t>(place.source_column - k_w * w.shift_step) <
                                                 static_cast<uint32_t>(params.columns);
          const uint32_t bits = __ballot_sync(0xffffffffu, has_tap);
          if (m % 32 == 0) s_bits[word] = bits;
          complete &= has_tap || m >= params.block_positions;
        }
      }
    }
    return complete;
  }
};

// Range of terms of a stage.
struct GatherChunk {
  int32_t ci;
  int32_t tap;
  int32_t num_ci;
  int32_t num_taps;
};

// Source terms and positions that a thread copies.
struct GatherCopies {
  int32_t term, term_step;
  int32_t position, position_step;

  __device__ __forceinline__ explicit GatherCopies(const GatherParams& params) {
    const int32_t lanes = 1 << params.load_lanes_log2;
    term = static_cast<int32_t>(threadIdx.x) & (lanes - 1), term_step = lanes;
    const int32_t thread = static_cast<int32_t>(threadIdx.x) >> params.load_lanes_log2;
    const int32_t threads = static_cast<int32_t>(blockDim.x) >> params.load_lanes_log2;
    position = thread, position_step = threads;
    if (threads >= params.block_positions) {
      const int32_t rows = threads / params.block_positions, row = thread / params.block_positions;
      term += row * lanes, term_step = rows * lanes;
      position = row < rows ? thread - row * params.block_positions : params.block_positions;
      position_step = params.block_positions;
    }
  }
};

inline constexpr int kGatherBatch = 8;  // copies whose addresses are computed before the first is issued

template <bool kInside>
__device__ __forceinline__ void load_source(const GatherParams& params, const GatherTables& tables,
                                            const GatherCopies& copies, const GatherChunk& chunk, const float* g_group,
                                            uint32_t s_stage) {
  const int32_t words = params.table_positions / 32;
  const int32_t terms = params.by_channels ? params.chunk_ci * chunk.num_taps : chunk.num_ci * chunk.num_taps;
  const int32_t channel_mask = params.by_channels ? params.chunk_ci - 1 : 0;
  // Batches up to whole_end need no predicates.
  const bool whole = kInside && (!params.by_channels || chunk.num_ci == params.chunk_ci);
  const int32_t whole_end = whole ? terms - (kGatherBatch - 1) * copies.term_step : 0;
  const GatherTerm* s_terms = tables.s_terms + chunk.tap;  // a stage with only some of the taps has one channel
  const uint32_t s_first = s_stage - 4 * chunk.tap * params.block_positions;
#pragma unroll 1
  for (int32_t m = copies.position; m < params.block_positions; m += copies.position_step) {
    const float* g_position = g_group + tables.s_source[m] + chunk.ci * static_cast<int32_t>(params.source_stride[1]);
    const uint32_t s_position = s_first + 4 * m;
    const uint32_t* s_bits = tables.s_bits + m / 32;
    int32_t term = copies.term;
    const GatherTerm* s_term = s_terms + term;
#pragma unroll 1
    for (; term < whole_end; term += kGatherBatch * copies.term_step) {
      uint32_t shared[kGatherBatch];
      const void* global[kGatherBatch];
#pragma unroll
      for (int i = 0; i < kGatherBatch; ++i, s_term += copies.term_step) {
        const int2 source = *reinterpret_cast<const int2*>(s_term);
        shared[i] = s_position + source.y;
        global[i] = g_position + source.x;
      }
      ptx::cp_async_4_bytes(shared, global);
    }
#pragma unroll 1
    for (; term < terms; term += kGatherBatch * copies.term_step) {
      uint32_t shared[kGatherBatch];
      const void* global[kGatherBatch];
      bool copy[kGatherBatch];
#pragma unroll
      for (int i = 0; i < kGatherBatch; ++i) {
        const int32_t t = term + i * copies.term_step;
        const GatherTerm& of = s_terms[t < terms ? t : term];
        copy[i] = t < terms && (t & channel_mask) < chunk.num_ci;
        if constexpr (!kInside) copy[i] = copy[i] && (s_bits[of.tap() * words] >> m % 32 & 1) != 0;
        shared[i] = s_position + of.source_place;
        global[i] = g_position + of.source;
      }
      ptx::cp_async_4_bytes_if(shared, global, copy);
    }
  }
}

// Loads the weights of num_channels result channels. Eight neighbouring lanes copy terms that are contiguous in memory.
__device__ __forceinline__ void load_weight(const GatherParams& params, const GatherTables& tables,
                                            const GatherChunk& chunk, const float* g_weight, int32_t num_channels,
                                            uint32_t s_stage) {
  constexpr int32_t kLanes = 8;
  constexpr uint32_t kPlaces = (1u << GatherTerm::kPlaceBits) - 1;
  const int32_t terms = params.by_channels ? params.chunk_ci * chunk.num_taps : chunk.num_ci * chunk.num_taps;
  const int32_t channel_mask = params.by_channels ? params.chunk_ci - 1 : 0;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t step = static_cast<int32_t>(blockDim.x) / kLanes;
  const GatherTerm* s_terms = tables.s_terms + chunk.tap;
  const uint32_t s_first = s_stage - 4 * chunk.tap * params.weight_pitch;
#pragma unroll 1
  for (int32_t n = thread / kLanes; n < num_channels; n += step) {
    const float* g_channel = g_weight + chunk.ci * params.weight_stride[0] + n * params.weight_stride[1];
    const uint32_t s_channel = s_first + 4 * n;
#pragma unroll 1
    for (int32_t term = thread % kLanes; term < terms; term += kGatherBatch * kLanes) {
      uint32_t shared[kGatherBatch];
      const void* global[kGatherBatch];
      bool copy[kGatherBatch];
#pragma unroll
      for (int i = 0; i < kGatherBatch; ++i) {
        const int32_t t = term + i * kLanes;
        copy[i] = t < terms && (t & channel_mask) < chunk.num_ci;
        const GatherTerm& s_term = s_terms[t < terms ? t : term];
        shared[i] = s_channel + (s_term.weight_place & kPlaces);
        global[i] = g_channel + s_term.weight;
      }
      ptx::cp_async_4_bytes_if(shared, global, copy);
    }
  }
}

}  // namespace convt::gather
