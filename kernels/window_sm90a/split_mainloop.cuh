// The window engine's products of tf32x3: numbers are sums of two TF32 numbers, a high and a low part, and a term is
// three products. Tensor cores round their sums toward zero; so they sum short runs, which are added in float32.
#pragma once

#include "window_sm90a/mainloop.cuh"

namespace convt::window_sm90a {

#ifdef CONVT_HAS_WGMMA

// Two neighbouring columns of a thread's channels, from column c of its window on: the first operand of block b for tap
// c - 2 * b.
struct SplitColumns {
  uint32_t high[4], low[4];
};

template <typename Shape>
__device__ __forceinline__ void make_columns(SplitColumns& columns, const Window<Shape>& window, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::write_fragments_split(columns.high[i], columns.low[i], window.words[i / 2][first + i % 2], first % 2 != 0);
  }
}

__device__ __forceinline__ void keep(SplitColumns& columns) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::keep_fragment(columns.high[i]);
    ptx::keep_fragment(columns.low[i]);
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

// The three products of a term for all taps of a column of taps that a source row has, the small ones first.
template <typename Shape>
__device__ __forceinline__ void multiply_split(Accumulators<Shape>& runs, int block, int row, const SplitColumns& columns,
                                               const ptx::MatrixDescriptor& b, int tap, bool add) {
#pragma unroll
  for (int tap_row = 0; tap_row < Shape::kKernelH; ++tap_row) {
    const int result_row = row - tap_row;
    if (result_row < 0 || result_row >= Shape::kRows) continue;
    const ptx::MatrixDescriptor high = b.moved((tap_row * Shape::kKernelW + tap) * (Shape::kTapBytes / 16));
    ptx::wgmma<typename Shape::Traits::Element>(runs.r[result_row][block], columns.low, high, add);
    ptx::wgmma<typename Shape::Traits::Element>(runs.r[result_row][block], columns.high,
                                                high.moved(Shape::kPartBytes / 16), true);
    ptx::wgmma<typename Shape::Traits::Element>(runs.r[result_row][block], columns.high, high, true);
  }
}

template <typename Shape>
__device__ __forceinline__ void add_run(Accumulators<Shape>& sums, const Accumulators<Shape>& runs, int row, int block) {
#pragma unroll
  for (int i = 0; i < Shape::kN / 2; ++i) {
    float& sum = sums.r[row][block][i];
    sum = __fadd_rn(sum, runs.r[row][block][i]);
  }
}

template <typename Shape>
__device__ __forceinline__ void clear(Accumulators<Shape>& sums) {
#pragma unroll
  for (int row = 0; row < Shape::kRows; ++row) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int i = 0; i < Shape::kN / 2; ++i) sums.r[row][block][i] = 0;
    }
  }
}

// All products of a tile. The order of a sum: stages, source rows, steps; a run is one source row's, or one half of it.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& sums, const Params& params,
                                                    const Source<Shape, kShifted>& source, uint32_t s_slots,
                                                    Ring* ring) {
  using Steps = Steps<Shape::kKernelW>;
  constexpr int kKept = 4;  // pairs of columns: two that products in flight read, and the next two
  Window<Shape> window;
  SplitColumns kept[kKept] = {};
  Accumulators<Shape> runs;
  clear(sums);
  clear(runs);
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
          keep(kept[first % kKept]);
          make_columns(kept[first % kKept], window, tap);
        }
        keep(kept[(first + 1) % kKept]);
        make_columns(kept[(first + 1) % kKept], window, tap + 2);
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if (Steps::begins_run(step) && (row > 0 || step > 0)) {
            ptx::wgmma_wait<1>();  // the other block's products run while this one's runs are added
#pragma unroll
            for (int result_row = 0; result_row < Shape::kRows; ++result_row) {
              const int begun = step > 0 ? row : row - 1;  // the run's source row
              if (begun < result_row || row >= result_row + Shape::kKernelH) continue;
              add_run(sums, runs, result_row, block);
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
#pragma unroll
    for (int i = 0; i < kKept; ++i) keep(kept[i]);
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) {
#pragma unroll
      for (int block = 0; block < 2; ++block) add_run(sums, runs, row, block);
    }
    release(stage.empty);
  }
}

#endif

}  // namespace convt::window_sm90a
