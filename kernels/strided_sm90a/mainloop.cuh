// The strided engine's products: positions are the rows, in registers, result channels the columns.
#pragma once

#include "pipeline/ring.cuh"
#include "strided_sm90a/window.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// The products of one group. `b` is the slot's begin.
template <typename Shape>
__device__ __forceinline__ void multiply_group(Accumulators<Shape>& sums, const Fragments<Shape>& fragments,
                                               const ptx::MatrixDescriptor& b, int row, int group) {
  constexpr uint32_t kTap = Shape::kTapBytes / 16;
  if constexpr (Shape::kAllPhases) {
    // Taps 0 to 2 are of the first H phase, which reads row 0 alone; in each of them one of the first W phase and two
    // for each row of the second, of which the first is a column further.
#pragma unroll
    for (int phase = 2 * row; phase < 4; ++phase) {
      const int of_row = phase < 2 ? 0 : 1 - row;
      const int first_tap = phase < 2 ? phase : phase == 2 ? 3 + of_row : 5 + 2 * of_row;
#pragma unroll
      for (int tap = 0; tap <= phase % 2; ++tap) {
        const int shift = phase % 2 - tap;
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          ptx::wgmma<typename Shape::Traits::Element>(sums.r[phase][block], fragments[shift + block],
                                                      b.moved((first_tap + tap) * kTap), true);
        }
      }
    }
  } else if constexpr (Shape::kOutput) {
    // Taps of a W phase and row in the order of descending shift: columns 1 and 0, or 2 and 1 of the window.
#pragma unroll
    for (int phase = 0; phase < 2; ++phase) {
#pragma unroll
      for (int tap = 0; tap < 2; ++tap) {
        const int shift = 1 + phase - tap;
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          ptx::wgmma<typename Shape::Traits::Element>(sums.r[phase][block], fragments[shift + block],
                                                      b.moved((4 * phase + 2 * (1 - row) + tap) * kTap), true);
        }
      }
    }
  } else {
#pragma unroll
    for (int tap = 0; tap < 2; ++tap) {
      if (2 * tap + group >= Shape::kKernel) continue;
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(sums.r[0][block], fragments[tap + block],
                                                    b.moved((2 * group + tap) * kTap), true);
      }
    }
  }
}

// Rows beside the source are 64 bytes of zeros.
template <typename Shape>
__device__ __forceinline__ void load_row(Words<Shape>& words, const Params& params, const Quad& quad, uint32_t s_stage,
                                         uint32_t s_zeros, int row) {
  const bool exists = quad.rows >> row & 1;
  const uint32_t s_row = s_stage + row * params.row_bytes + quad.source;
  load_words<Shape>(words, exists ? s_row : s_zeros + 16, quad, exists ? params.channel_bytes : 0);
}

template <typename Shape>
__device__ __forceinline__ void clear(Accumulators<Shape>& sums) {
#pragma unroll
  for (int phase = 0; phase < Shape::kPhases; ++phase) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int i = 0; i < Shape::kN / 2; ++i) sums.r[phase][block][i] = 0;
    }
  }
}

// Here sums are in registers: ptxas, which may make them later or use them sooner, would serialize products (C7514,
// C7515).
template <typename Shape>
__device__ __forceinline__ void keep(Accumulators<Shape>& sums) {
#pragma unroll
  for (int plane = 0; plane < 2 * Shape::kPhases; ++plane) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) ptx::keep_accumulator(sums.r[plane / 2][plane % 2][i]);
  }
}

// All products of a tile, or of every other stage from number `first` on. The sums' order: stages, rows, taps, steps
// of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& sums, const Params& params, const Quad& quad,
                                              const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                              uint32_t s_zeros, Ring* sources, Ring* weights, int32_t first) {
  constexpr int kStep = Shape::kAlternate ? kStridedConsumers : 1;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // the barrier of the weights before those of the newest products
  clear<Shape>(sums);
  Words<Shape> words;
  const auto load = [&](int row) {
    load_row<Shape>(words, params, quad, s_source + sources->slot() * params.stage_bytes, s_zeros, row);
  };
  if constexpr (Shape::kAlternate) {
    keep<Shape>(sums);
    sources->advance(first);
    weights->advance(first * Shape::kStageSlots);
  }
  sources->wait_full();
  load(0);
#pragma unroll 1
  for (int32_t chunk = chunks.begin + first; chunk < chunks.end; chunk += kStep) {
    ptx::MatrixDescriptor b{};
#pragma unroll
    for (int number = 0; number < Shape::kRows * Shape::kGroups; ++number) {
      constexpr int kOfSlot = Shape::kGroups * Shape::kSlotRows;  // groups
      const int row = number / Shape::kGroups, group = number % Shape::kGroups;
      Fragments<Shape>& mine = fragments[number % 2];
      if (number % kOfSlot == 0) {
        weights->wait_full();
        b = ptx::MatrixDescriptor::of(s_weights + weights->slot() * Shape::kSlotBytes, Shape::kN * 16, 128);
      }
      ptx::wgmma_wait<1>();  // the products of these registers' last fragments are done
      keep<Shape>(mine);
      to_fragments<Shape>(mine, words, group, zero);
      ptx::wgmma_fence();
      multiply_group<Shape>(sums, mine, b, row, group);
      ptx::wgmma_commit();
      if (number % kOfSlot == kOfSlot - 1) {
        if (used != 0) release(used);
        used = weights->empty();
        weights->advance();
      }
      if (group < Shape::kGroups - 1) continue;
      // While these products run: the next row's words.
      if (row < Shape::kRows - 1) {
        load(row + 1);
      } else {
        release(sources->empty());
        sources->advance();
        if constexpr (kStep > 1) {  // the other warpgroup's
          sources->advance(kStep - 1);
          weights->advance((kStep - 1) * Shape::kStageSlots);
        }
        if (chunk + kStep < chunks.end) {
          sources->wait_full();
          load(0);
        }
      }
    }
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 2; ++i) keep<Shape>(fragments[i]);
  if constexpr (Shape::kAlternate) keep<Shape>(sums);
  release(used);
}

#endif

}  // namespace convt::strided_sm90a
