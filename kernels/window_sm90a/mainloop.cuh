// The window engine's products. Source windows are the first operand, in registers: a thread reads the columns that its
// four results and all taps of a row need once, and makes every tap's fragments of them. Weights are the second
// operand.
#pragma once

#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"
#include "window_sm90a/tile.cuh"
#include "window_sm90a/window.cuh"

namespace convt::window_sm90a {

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

__device__ __forceinline__ void keep(Fragments& fragments) {
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::keep_fragment(fragments[block][i]);
  }
}

// A stage that is being multiplied.
struct Stage {
  uint32_t place;  // bytes from the first slot
  uint32_t empty;  // its barrier
  ptx::MatrixDescriptor weights;
};

// The one at which the ring stands, which moves on.
template <typename Shape>
__device__ __forceinline__ Stage take_stage(const Params& params, uint32_t s_slots, Ring* ring) {
  const uint32_t place = ring->slot() * params.slot_bytes;
  const Stage stage{place, ring->empty(),
                    ptx::MatrixDescriptor::of(s_slots + place + params.source_bytes, 16 * Shape::kN, 128)};
  ring->advance();
  return stage;
}

// Its first window, as soon as it is there.
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

// All products of a tile. The order of a sum: stages, taps by ascending source row, then column.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& sums, const Params& params,
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
        keep(mine);
        make_fragments<Shape>(mine, windows[row % 2], tap);
        ptx::wgmma_fence();
#pragma unroll
        for (int tap_row = 0; tap_row < Shape::kKernelH; ++tap_row) {
          const int result_row = row - tap_row;
          if (result_row < 0 || result_row >= Shape::kRows) continue;
          const bool first = tap_row == 0 && tap == 0;
#pragma unroll
          for (int block = 0; block < 2; ++block) {
            ptx::wgmma<typename Shape::Traits::Element>(
                sums.r[result_row][block], mine[block],
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
  keep(fragments[0]);
  keep(fragments[1]);
  release(used);
}

#endif

}  // namespace convt::window_sm90a
