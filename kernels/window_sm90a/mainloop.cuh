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

template <typename Shape>
__device__ __forceinline__ void multiply(float (&d)[Shape::kN / 2], const uint32_t (&a)[4],
                                         const ptx::MatrixDescriptor& b, bool add) {
  using Traits = typename Shape::Traits;
  if constexpr (Traits::kFloat32) {
    ptx::wgmma_tf32(d, a, b, add);
  } else if constexpr (Traits::kOperand == wgmma_sm90a::Operand::kBFloat16) {
    ptx::wgmma_bf16(d, a, b, add);
  } else {
    ptx::wgmma_f16(d, a, b, add);
  }
}

// All products of a tile. The order of a sum: stages, taps by ascending source row, then column.
template <typename Shape, bool kShifted>
__device__ __forceinline__ void multiply_tile(Sums<Shape>& sums, const Params& params,
                                              const Source<Shape, kShifted>& source, uint32_t s_slots, Ring* ring) {
  constexpr int kKernelW = Shape::kKernelW;
  // The step that reads the next window: early, but where two windows take too many registers.
  constexpr int kNextWindow = kKernelW > (kShifted ? 3 : 5) ? kKernelW - 1 : kKernelW / 2 - 1;
  Window<Shape> windows[2];
  Fragments fragments[2] = {};
  uint32_t used = 0;  // the barrier of the slot whose products may be in flight
  ring->wait_full();
  source.load(windows[0], ring->slot() * params.slot_bytes, 0);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    const uint32_t slot = ring->slot() * params.slot_bytes;
    const auto b = ptx::MatrixDescriptor::of(s_slots + slot + params.source_bytes, 16 * Shape::kN, 128);
    const uint32_t empty = ring->empty();
    ring->advance();
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
            multiply<Shape>(sums.r[result_row][block], mine[block],
                            b.moved((tap_row * kKernelW + tap) * (Shape::kTapBytes / 16)), !first || chunk > 0);
          }
        }
        ptx::wgmma_commit();
        // All products of the stage before are done since the second wait of this one.
        if (row == 0 && tap == 1 && used != 0) leave(used);
        if (tap == kNextWindow) {
          // While these products run: the next row's window, or the next stage's first.
          if (row + 1 < Shape::kSourceRows) {
            source.load(windows[(row + 1) % 2], slot, row + 1);
          } else if (chunk + 1 < params.num_chunks) {
            ring->wait_full();
            source.load(windows[0], ring->slot() * params.slot_bytes, 0);
          }
        }
      }
    }
    used = empty;
  }
  ptx::wgmma_wait<0>();
  keep(fragments[0]);
  keep(fragments[1]);
  leave(used);
}

#endif

}  // namespace convt::window_sm90a
