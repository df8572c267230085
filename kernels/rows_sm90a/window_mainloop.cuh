// The window engine's products. Source windows are the first operand, in registers: a thread reads the columns that its
// four results and all taps of a row need once, and makes every tap's fragments of them. Weights are the second
// operand.
#pragma once

#include "element/registers.cuh"
#include "pipeline/ring.cuh"
#include "rows_sm90a/window_tile.cuh"

namespace convt::rows_sm90a::window {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// The first operands of one tap for both blocks.
using Fragments = uint32_t[2][4];

// Products read their fragments while they are in flight, so that these registers are written here, by instructions
// that ptxas cannot drop, and not a moment sooner.
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

// A stage that is being multiplied.
struct Stage {
  uint32_t place;  // bytes from the first slot
  uint32_t empty;  // its barrier
  ptx::MatrixDescriptor weights;
};

// The stage at which the ring stands, which moves on.
template <typename Shape>
__device__ __forceinline__ Stage take_stage(const Params& params, uint32_t s_slots, Ring* ring) {
  const uint32_t place = ring->slot() * params.slot_bytes;
  const Stage stage{place, ring->empty(),
                    ptx::MatrixDescriptor::of(s_slots + place + params.source_bytes, 16 * Shape::kN, 128)};
  ring->advance();
  return stage;
}

// The first window of the ring's stage, as soon as it is there.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void load_first(Window<Shape>& window, const Params& params,
                                           const Source<Shape, kShifted>& source, const Ring& ring) {
  ring.wait_full();
  source.load(window, ring.slot() * params.slot_bytes, 0);
}

// The window after that of source row `row`: the next row's, or the next stage's first.
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

// All products of a tile, added in the order of stages, then of taps by ascending source row, then column.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params,
                                              const Source<Shape, kShifted>& source, uint32_t s_slots, Ring* ring) {
  constexpr int kKernelW = Shape::kKernelW;
  static_assert(Shape::kSourceRows % 2 == 0);  // the next stage's first window is the first of both
  // The step that reads the next window: early, but where two windows take too many registers.
  constexpr int kNextWindow = kKernelW > (kShifted ? 3 : 5) ? kKernelW - 1 : kKernelW / 2 - 1;
  Window<Shape> windows[2];
  Fragments fragments[2] = {};
  uint32_t used = 0;  // the barrier of the slot whose products may be in flight
  load_first(windows[0], params, source, *ring);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    const Stage stage = take_stage<Shape>(params, s_slots, ring);
#pragma unroll
    for (int row = 0; row < Shape::kSourceRows; ++row) {
#pragma unroll
      for (int tap = 0; tap < kKernelW; ++tap) {
        Fragments& mine = fragments[(row * kKernelW + tap) % 2];
        ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
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
        // All products of the stage before are done since the second wait of this one.
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

// Operands of tf32x3 are sums of two TF32 numbers, a high and a low term, and a product is three. Tensor cores round
// their sums toward zero; so they sum short runs, which are added in float32.
//
// Two neighbouring columns of a thread's channels, from column c of its window on: the first operand of block b for tap
// c - 2 * b.
using SplitColumns = element::Terms<uint32_t[4]>;

template <typename Shape>
__device__ __forceinline__ void make_columns(SplitColumns& columns, const Window<Shape>& window, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::write_fragments_split(columns.high[i], columns.low[i], window.words[i / 2][first + i % 2], first % 2 != 0);
  }
}

// The steps of a source row, one for each tap: even taps, then odd ones, so that neighbouring steps share columns.
template <int kKernelW>
struct Steps {
  static constexpr int kEven = (kKernelW + 1) / 2;
  static constexpr int kColumns = kKernelW + 2;  // pairs of them, of all steps
  // A run has 16 to 32 terms.
  static constexpr bool begins_run(int step) { return step == 0 || (kKernelW > 3 && step == kEven); }
  static constexpr bool begins_columns(int step) { return step == 0 || step == kEven; }
  static constexpr int tap(int step) { return step < kEven ? 2 * step : 2 * (step - kEven) + 1; }
  static constexpr int columns(int step) { return step + (step >= kEven ? 1 : 0); }  // of block 0; block 1's are next
};

// The three products of all taps of a column of taps that a source row has, the small ones first.
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

// All products of a tile of tf32x3, added in the order of stages, source rows, steps; a run is one source row's, or one
// half of it.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params,
                                                    const Source<Shape, kShifted>& source, uint32_t s_slots,
                                                    Ring* ring) {
  using Steps = Steps<Shape::kKernelW>;
  constexpr int kKept = 4;  // pairs of columns: two that products in flight read, and the next two
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
        ptx::wgmma_wait<2>();  // each block's products of a step are a group: all but those of the step before are done
        if (Steps::begins_columns(step)) {
          element::fence_registers(kept[first % kKept]);
          make_columns(kept[first % kKept], window, tap);
        }
        element::fence_registers(kept[(first + 1) % kKept]);
        make_columns(kept[(first + 1) % kKept], window, tap + 2);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if (Steps::begins_run(step) && (row > 0 || step > 0)) {
            ptx::wgmma_wait<1>();  // the other block's products run while this one's runs are added
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
    // Where products are in flight at the loop's jump, ptxas serializes all of them.
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
