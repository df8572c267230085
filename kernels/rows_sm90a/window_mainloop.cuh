// Main loops of `window`. Source windows are operand A, in registers: a thread loads the columns for its four results
// and all taps of a row once, and builds the fragments of every tap from them. Weights are operand B.
#pragma once

#include "element/registers.cuh"
#include "pipeline/ring.cuh"
#include "rows_sm90a/window_tile.cuh"

namespace convt::rows_sm90a::window {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// Operand A of one tap for both blocks.
using Fragments = uint32_t[2][4];

// Products in flight read their fragments. The registers are therefore written at this point and not earlier, by
// instructions that ptxas cannot remove.
template <typename Shape>
__device__ __forceinline__ void make_fragments(Fragments& fragments, const Window<Shape>& window, int tap) {
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 2 * block + tap + i % 2;
      if constexpr (Shape::kElement == 4) {
        ptx::write_fragment_tf32(fragments[block][i], window.words[i / 2][column]);
      } else {
        ptx::write_fragment_halves(fragments[block][i], window.words[i / 2 * 2][column / 2],
                                   window.words[i / 2 * 2 + 1][column / 2], column % 2);
      }
    }
  }
}

struct Stage {
  uint32_t place;  // byte offset of the slot
  uint32_t empty;  // barrier
  ptx::MatrixDescriptor weights;
};

// Returns the ring's current stage and advances the ring.
template <typename Shape>
__device__ __forceinline__ Stage take_stage(const Params& params, uint32_t s_slots, Ring* ring) {
  const uint32_t place = ring->slot() * params.slot_bytes;
  const Stage stage{place, ring->empty(),
                    ptx::MatrixDescriptor::of(s_slots + place + params.source_bytes, 16 * Shape::kN, 128)};
  ring->advance();
  return stage;
}

// Waits for the ring's stage and loads its first window.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void load_first(Window<Shape>& window, const Params& params,
                                           const Source<Shape, kShifted>& source, const Ring& ring) {
  ring.wait_full();
  source.load(window, ring.slot() * params.slot_bytes, 0);
}

// Loads the window after that of source row `row`: of the next row, or the first of the next stage.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void load_next(Window<Shape>& window, const Params& params,
                                          const Source<Shape, kShifted>& source, const Stage& stage, int row,
                                          bool last_stage, const Ring& ring) {
  if (row + 1 < Shape::kSourceRows) {
    source.load(window, stage.place, row + 1);
  } else if (!last_stage) {
    load_first(window, params, source, ring);
  }
}

// All products of a tile, accumulated in the order of stages, then taps by ascending source row, then column.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params,
                                              const Source<Shape, kShifted>& source, uint32_t s_slots, Ring* ring) {
  constexpr int kKernelW = Shape::kKernelW;
  static_assert(Shape::kSourceRows % 2 == 0);  // the next stage's first window is windows[0]
  // Tap that loads the next window: early, unless two windows need too many registers.
  constexpr int kNextWindow = kKernelW > (kShifted ? 3 : 5) ? kKernelW - 1 : kKernelW / 2 - 1;
  Window<Shape> windows[2];
  Fragments fragments[2] = {};
  uint32_t used = 0;  // empty barrier of the previous stage, which products in flight may read
  load_first(windows[0], params, source, *ring);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    const Stage stage = take_stage<Shape>(params, s_slots, ring);
#pragma unroll
    for (int row = 0; row < Shape::kSourceRows; ++row) {
#pragma unroll
      for (int tap = 0; tap < kKernelW; ++tap) {
        Fragments& mine = fragments[(row * kKernelW + tap) % 2];
        ptx::wgmma_wait<1>();  // the previous products that read these registers are complete
        element::fence_registers(mine);
        make_fragments<Shape>(mine, windows[row % 2], tap);
        ptx::wgmma_fence();
#pragma unroll
        for (int tap_row = 0; tap_row < Shape::kKernelH; ++tap_row) {
          const int result_row = row - tap_row;
          if (result_row < 0 || result_row >= Shape::kRows) continue;
          const bool first = tap_row == 0 && tap == 0;
#pragma unroll
          for (int block = 0; block < 2; ++block) {
            ptx::wgmma<typename Shape::Element>(
                acc.r[result_row][block], mine[block],
                stage.weights.moved((tap_row * kKernelW + tap) * (Shape::kTapBytes / 16)), !first || chunk > 0);
          }
        }
        ptx::wgmma_commit();
        // All products of the previous stage are complete since the second wait of this stage.
        if (row == 0 && tap == 1 && used != 0) release(used);
        if (tap == kNextWindow) {  // while these products run
          load_next(windows[(row + 1) % 2], params, source, stage, row, chunk + 1 == params.num_chunks, *ring);
        }
      }
    }
    used = stage.empty;
  }
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
  release(used);
}

// In tf32x3 an operand is a sum of two TF32 numbers, a high and a low term, and three products are computed. Tensor
// cores round accumulators toward zero, so they accumulate short runs, which are added in float32.
//
// Two adjacent columns of a thread's channels, from column c of its window on: operand A of block b for tap c - 2 * b.
using SplitColumns = element::Terms<uint32_t[4]>;

template <typename Shape>
__device__ __forceinline__ void make_columns(SplitColumns& columns, const Window<Shape>& window, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::write_fragments_split(columns.high[i], columns.low[i], window.words[i / 2][first + i % 2], first % 2 != 0);
  }
}

// Steps of a source row, one per tap: even taps, then odd taps, so that consecutive steps share columns.
template <int kKernelW>
struct Steps {
  static constexpr int kEven = (kKernelW + 1) / 2;
  static constexpr int kColumns = kKernelW + 2;  // pairs of columns of all steps
  // A run has 16 to 32 terms.
  static constexpr bool begins_run(int step) { return step == 0 || (kKernelW > 3 && step == kEven); }
  static constexpr bool begins_columns(int step) { return step == 0 || step == kEven; }
  static constexpr int tap(int step) { return step < kEven ? 2 * step : 2 * (step - kEven) + 1; }
  static constexpr int columns(int step) { return step + (step >= kEven ? 1 : 0); }  // of block 0; block 1: the next
};

// Issues the three products, small ones first, of tap column `tap` for all result rows that read source row `row`.
template <typename Shape>
__device__ __forceinline__ void multiply_split(Accumulators<Shape>& runs, int block, int row,
                                               const SplitColumns& columns, const ptx::MatrixDescriptor& b, int tap,
                                               bool add) {
#pragma unroll
  for (int tap_row = 0; tap_row < Shape::kKernelH; ++tap_row) {
    const int result_row = row - tap_row;
    if (result_row < 0 || result_row >= Shape::kRows) continue;
    const ptx::MatrixDescriptor high = b.moved((tap_row * Shape::kKernelW + tap) * (Shape::kTapBytes / 16));
    ptx::wgmma<typename Shape::Element>(runs.r[result_row][block], columns.low, high, add);
    ptx::wgmma<typename Shape::Element>(runs.r[result_row][block], columns.high, high.moved(Shape::kTermBytes / 16),
                                        true);
    ptx::wgmma<typename Shape::Element>(runs.r[result_row][block], columns.high, high, true);
  }
}

template <typename Shape>
__device__ __forceinline__ void add_run(Accumulators<Shape>& acc, const Accumulators<Shape>& runs, int row, int block) {
#pragma unroll
  for (int i = 0; i < Shape::kN / 2; ++i) {
    float& sum = acc.r[row][block][i];
    sum = __fadd_rn(sum, runs.r[row][block][i]);
  }
}

// All products of a tile in tf32x3, accumulated in the order of stages, source rows, steps. A run is a source row or,
// for wide kernels, its even or its odd taps.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params,
                                                    const Source<Shape, kShifted>& source, uint32_t s_slots,
                                                    Ring* ring) {
  using Steps = Steps<Shape::kKernelW>;
  constexpr int kKept = 4;  // pairs of columns: two for products in flight, two for the next
  Window<Shape> window;
  SplitColumns kept[kKept] = {};
  Accumulators<Shape> runs;
  element::clear(acc.r);
  element::clear(runs.r);
  load_first(window, params, source, *ring);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    const Stage stage = take_stage<Shape>(params, s_slots, ring);
#pragma unroll
    for (int row = 0; row < Shape::kSourceRows; ++row) {
#pragma unroll
      for (int step = 0; step < Shape::kKernelW; ++step) {
        const int tap = Steps::tap(step), first = row * Steps::kColumns + Steps::columns(step);
        ptx::wgmma_wait<2>();  // one commit group per step and block: all but the previous step are complete
        if (Steps::begins_columns(step)) {
          element::fence_registers(kept[first % kKept]);
          make_columns(kept[first % kKept], window, tap);
        }
        element::fence_registers(kept[(first + 1) % kKept]);
        make_columns(kept[(first + 1) % kKept], window, tap + 2);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if (Steps::begins_run(step) && (row > 0 || step > 0)) {
            ptx::wgmma_wait<1>();  // the other block's products continue while this block's runs are added
#pragma unroll
            for (int result_row = 0; result_row < Shape::kRows; ++result_row) {
              const int begun = step > 0 ? row : row - 1;  // the run's source row
              if (begun < result_row || row >= result_row + Shape::kKernelH) continue;
              add_run(acc, runs, result_row, block);
            }
          }
          ptx::wgmma_fence();
          multiply_split<Shape>(runs, block, row, kept[(first + block) % kKept], stage.weights, tap,
                                !Steps::begins_run(step));
          ptx::wgmma_commit();
        }
        if (step == Shape::kKernelW - 1) {  // while these products run
          load_next(window, params, source, stage, row, chunk + 1 == params.num_chunks, *ring);
        }
      }
    }
    // If products are in flight at the loop's branch, ptxas serializes all products.
    ptx::wgmma_wait<0>();
    element::fence_registers(kept);
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) {
#pragma unroll
      for (int block = 0; block < 2; ++block) add_run(acc, runs, row, block);
    }
    release(stage.empty);
  }
}

#endif

}  // namespace convt::rows_sm90a::window
