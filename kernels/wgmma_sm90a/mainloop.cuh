// The consumers' products: every stage of a tile, every run of taps, into registers. A tap is nothing but another start
// address of the same operand planes.
#pragma once

#include "element/registers.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "wgmma_sm90a/tile.cuh"

namespace convt::wgmma_sm90a {

#ifdef CONVT_HAS_WGMMA

// kAccumulators times 64 positions x kN channels, those of W phase p from p * kBlocks on.
template <typename Traits>
using Accumulators = float[Traits::kAccumulators][Traits::kN / 2];

// The source planes' first position and the first weights of a slot; steps are in the descriptors' unit, 16 bytes.
struct Operands {
  ptx::MatrixDescriptor source;
  ptx::MatrixDescriptor weights;
  uint32_t source_k_step;  // 2 planes
  uint32_t source_terms;  // from the high terms to the low terms
  uint32_t weights_terms;
};

// Where a walk over the taps of a run stands: the tap's place in the operand planes.
struct TapCursor {
  uint32_t line;  // of the row's first tap
  uint32_t place;
  int32_t columns_left;
};

// The next `num_taps` taps of a run for kBlocks blocks of positions. The first product replaces the
// accumulators unless `add`.
template <typename Traits, int kBlocks>
__device__ __forceinline__ void multiply_taps(float (*r)[Traits::kN / 2], const Params& params, const TapRun& run,
                                              const Operands& operands, const uint32_t (&block_origin)[kBlocks],
                                              int32_t num_taps, bool add, TapCursor* cursor) {
  constexpr uint32_t kWeightStep = 2 * Traits::kN;  // of one step of K
  ptx::MatrixDescriptor weights = operands.weights;
  const uint32_t tap_step = params.tap_bytes / 16 - params.k_steps * kWeightStep;
  ptx::wgmma_fence();
#pragma unroll 1
  for (int32_t tap = 0; tap < num_taps; ++tap) {
    ptx::MatrixDescriptor source = operands.source.moved(cursor->place);
#pragma unroll 1
    for (int32_t step = 0; step < params.k_steps; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const ptx::MatrixDescriptor positions = source.moved(block_origin[block]);
        ptx::wgmma<typename Traits::Element>(r[block], positions, weights, add);
        if constexpr (Traits::kSplit) {
          ptx::wgmma<typename Traits::Element>(r[block], positions, weights.moved(operands.weights_terms), true);
          ptx::wgmma<typename Traits::Element>(r[block], positions.moved(operands.source_terms), weights, true);
        }
      }
      add = true;
      source = source.moved(operands.source_k_step);
      weights = weights.moved(kWeightStep);
    }
    weights = weights.moved(tap_step);
    cursor->place += run.column_step;
    if (--cursor->columns_left == 0) {
      cursor->line += run.row_step * params.pitch;
      cursor->place = cursor->line;
      cursor->columns_left = run.num_w;
    }
  }
  ptx::wgmma_commit();
}

// The whole tile. kPhases W phases of kBlocks blocks each.
template <typename Traits, int kPhases, int kBlocks>
__device__ __forceinline__ void multiply_tile(Accumulators<Traits>& acc, const Params& params, const Tile& tile,
                                              uint32_t s_source, uint32_t s_weights, Ring* sources, Ring* weights) {
  const uint32_t plane_bytes = params.plane_positions * 16;
  const uint32_t stage_bytes = Traits::kTerms * 2 * params.k_steps * plane_bytes;
  uint32_t block_origin[kBlocks];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    block_origin[block] = params.block_origin[block];
  }
  Operands operands;
  operands.source_k_step = 2 * params.plane_positions;
  operands.source_terms = 2 * params.k_steps * params.plane_positions;
  operands.weights_terms = params.k_steps * 2 * Traits::kN;
  const int32_t sub_positions = params.tile_n * params.rows * params.pitch;

  element::clear(acc);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    sources->wait_full();
    operands.source =
        ptx::MatrixDescriptor::of(s_source + sources->slot() * stage_bytes, plane_bytes, params.block_row_step * 16);
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) {
      const RunRange runs = runs_of(params, tile, phase);
#pragma unroll 1
      for (int32_t index = runs.begin; index < runs.end; ++index) {
        const TapRun& run = params.program.runs[index];
        const int32_t num_taps = run.num_h * run.num_w;
        TapCursor cursor;
        cursor.line = run.sub * sub_positions + run.row * params.pitch + run.column;
        cursor.place = cursor.line;
        cursor.columns_left = run.num_w;
#pragma unroll 1
        for (int32_t tap = 0; tap < num_taps; tap += params.slot_taps) {
          weights->wait_full();
          operands.weights = ptx::MatrixDescriptor::of(
              s_weights + weights->slot() * params.slot_taps * params.tap_bytes, Traits::kN * 16, 128);
          const int32_t slot_taps = min(params.slot_taps, num_taps - tap);
          if constexpr (Traits::kSplit) {
            // The tensor core rounds its sums toward zero: short runs, added in float32 registers.
            float r_run[kBlocks][Traits::kN / 2];
            multiply_taps<Traits, kBlocks>(r_run, params, run, operands, block_origin, slot_taps, false, &cursor);
            ptx::wgmma_wait<0>();
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
              for (int i = 0; i < Traits::kN / 2; ++i) acc[phase * kBlocks + block][i] += r_run[block][i];
            }
          } else {
            multiply_taps<Traits, kBlocks>(&acc[phase * kBlocks], params, run, operands, block_origin, slot_taps, true,
                                           &cursor);
            ptx::wgmma_wait<0>();
          }
          pipeline::release(weights->empty());
          weights->advance();
        }
      }
    }
    pipeline::release(sources->empty());
    sources->advance();
  }
}

#endif

}  // namespace convt::wgmma_sm90a
