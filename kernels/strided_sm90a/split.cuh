// The strided engine's products of split operands (tf32x3): each operand is the sum of two TF32 numbers, and of its
// four products three are taken.
//
// Tensor cores round their sums toward zero, so that they add short runs only, which go on in float32 registers. The
// thread's two blocks of positions take turns: while the products of one run, the other one's last run is added up and
// its next fragments are written.
#pragma once

#include "pipeline/ring.cuh"
#include "strided_sm90a/mainloop.cuh"
#include "strided_sm90a/window.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

// What a block's products of one turn are: some taps of a row.
template <typename Shape>
struct Turn {
  // Of a row: the gradient's even and odd taps, of a 3 x 3 kernel its phases, of which the second row has two.
  static constexpr int kEnd = Shape::kAllPhases ? 4 : Shape::kOutput ? 1 : 2;
  static constexpr int kRuns = Shape::kOutput && !Shape::kAllPhases ? 2 : 1;
  static constexpr int kFragments = Shape::kOutput && !Shape::kAllPhases ? 3 : 2;
  int row, part;

  static __device__ constexpr int begin(int row) { return Shape::kAllPhases ? 2 * row : 0; }
  // Of its runs.
  __device__ constexpr int phase(int run) const { return Shape::kAllPhases ? part : run; }
  __device__ constexpr bool writes() const { return !Shape::kAllPhases || part == begin(row); }
  // Where a fragment has its first position's column in the window.
  __device__ constexpr int column(int block, int fragment) const {
    if (!Shape::kOutput) return 4 * block + 2 * fragment + part;
    return 2 * block + fragment + (Shape::kAllPhases ? 1 : 0);
  }
  __device__ constexpr bool has_fragment(int fragment) const {
    return Shape::kOutput || 2 * fragment + part < Shape::kKernel;
  }
  // Products of a run.
  __device__ constexpr int taps() const {
    if (Shape::kAllPhases) return 1 + part % 2;
    return Shape::kOutput ? 2 : (Shape::kKernel - part + 1) / 2;
  }
  __device__ constexpr int fragment(int run, int tap) const {
    if (!Shape::kOutput) return tap;
    return (Shape::kAllPhases ? part % 2 : 1 + run) - tap;
  }
  // In the slot's weights. In both kernels taps of a row and phase are in the order of descending shift.
  __device__ constexpr int place(int run, int tap) const {
    if (!Shape::kOutput) return 2 * part + tap;
    if (!Shape::kAllPhases) return 4 * run + 2 * (1 - row) + tap;
    return (part < 2 ? part : part == 2 ? 3 + (1 - row) : 5 + 2 * (1 - row)) + tap;
  }
};

// Of one block.
template <typename Shape>
struct Half {
  float run[Turn<Shape>::kRuns][Shape::kN / 2];
  uint32_t high[Turn<Shape>::kFragments][4], low[Turn<Shape>::kFragments][4];

  // Behind the wait for the products that read and write them.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int i = 0; i < Turn<Shape>::kRuns; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kN / 2; ++j) asm volatile("" : "+f"(run[i][j])::"memory");
    }
#pragma unroll
    for (int f = 0; f < Turn<Shape>::kFragments; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ptx::keep_fragment(high[f][i]);
        ptx::keep_fragment(low[f][i]);
      }
    }
  }
};

#ifndef LOW_CVT
#define LOW_CVT 1
#endif

// A number as the sum of two of TF32. An infinity's second part is NaN.
__device__ __forceinline__ void write_split(uint32_t& high, uint32_t& low, uint32_t word) {
  ptx::write_fragment_tf32(high, word);
#if LOW_CVT
  asm volatile(
      "{\n"
      ".reg .f32 rest;\n"
      "sub.rn.f32 rest, %1, %2;\n"
      "cvt.rn.tf32.f32 %0, rest;\n"
      "}"
      : "=r"(low)
      : "f"(__uint_as_float(word)), "f"(__uint_as_float(high))
      : "memory");
#else
  asm volatile(
      "sub.rn.f32 %0, %1, %2;\n"
      : "=r"(low)
      : "f"(__uint_as_float(word)), "f"(__uint_as_float(high))
      : "memory");
#endif
}

// Neighbouring fragments share a column, and so do the blocks. ptxas would convert it once, and then copies every
// fragment for every product that reads it: `zero` is 0, which it does not know.
template <typename Shape>
__device__ __forceinline__ void write_fragments(Half<Shape>& half, const Words<Shape>& words, const Turn<Shape>& turn,
                                                int block, uint32_t zero) {
#pragma unroll
  for (int f = 0; f < Turn<Shape>::kFragments; ++f) {
    if (!turn.has_fragment(f)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (f % 2 == 1 && (i % 2 == 0 || f + 1 < Turn<Shape>::kFragments)) continue;
      const int column = turn.column(block, f) + i % 2 * Shape::kStep;
      uint32_t word = words[i / 2][column];
      if (block == 1 && column <= turn.column(0, Turn<Shape>::kFragments - 1) + Shape::kStep) word ^= zero;
      write_split(half.high[f][i], half.low[f][i], word);
    }
  }
#pragma unroll
  for (int f = 1; f < Turn<Shape>::kFragments; f += 2) {
    if (!turn.has_fragment(f)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int from = i % 2 == 0 ? f - 1 : f + 1;
      if (from >= Turn<Shape>::kFragments) continue;
      ptx::write_fragment(half.high[f][i], half.high[from][i ^ 1] ^ zero);
      ptx::write_fragment(half.low[f][i], half.low[from][i ^ 1] ^ zero);
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void add_runs(Sums<Shape>& sums, const Half<Shape>& half, const Turn<Shape>& turn,
                                         int block) {
#pragma unroll
  for (int run = 0; run < Turn<Shape>::kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) sums.r[turn.phase(run)][block][i] += half.run[run][i];
  }
}

// Small products first: sums are rounded the less the smaller they are.
template <typename Shape>
__device__ __forceinline__ void multiply_turn(Half<Shape>& half, const Turn<Shape>& turn,
                                              const ptx::MatrixDescriptor& b) {
  constexpr uint32_t kTap = Shape::kTapBytes / 16;
#pragma unroll
  for (int product = 0; product < 3; ++product) {
#pragma unroll
    for (int tap = 0; tap < turn.taps(); ++tap) {
#pragma unroll
      for (int run = 0; run < Turn<Shape>::kRuns; ++run) {
        const int f = turn.fragment(run, tap);
        const uint32_t place = turn.place(run, tap) * kTap + (product == 1 ? kTap / 2 : 0);
        ptx::wgmma_tf32(half.run[run], product == 0 ? half.low[f] : half.high[f], b.moved(place),
                        product > 0 || tap > 0);
      }
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Sums<Shape>& sums, const Params& params, const Quad& quad,
                                                    const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                                    uint32_t s_zeros, Ring* sources, Ring* weights) {
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Half<Shape> halves[2];
  uint32_t used = 0;  // the barrier of the weights before the newest
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) {
#pragma unroll
      for (int phase = 0; phase < Shape::kPhases; ++phase) sums.r[phase][block][i] = 0;
#pragma unroll
      for (int run = 0; run < Turn<Shape>::kRuns; ++run) halves[block].run[run][i] = 0;
    }
  }
  Words<Shape> words;
  const auto load_row = [&](int row) {
    const bool exists = quad.rows >> row & 1;
    const uint32_t s_row = s_source + sources->slot() * params.stage_bytes + row * params.row_bytes + quad.source;
    load_words<Shape>(words, exists ? s_row : s_zeros + 16, quad, exists ? params.channel_bytes : 0);
  };
  constexpr Turn<Shape> kLast{Shape::kRows - 1, Turn<Shape>::kEnd - 1};
#ifndef HEAD
  sources->wait_full();
  load_row(0);
#endif
  const auto multiply_stage = [&](int32_t chunk) {
#ifdef HEAD
  sources->wait_full();
  load_row(0);
#endif
    ptx::MatrixDescriptor b{};
    Turn<Shape> before = kLast;
#pragma unroll
    for (int row = 0; row < Shape::kRows; ++row) {
#pragma unroll
      for (int part = Turn<Shape>::begin(row); part < Turn<Shape>::kEnd; ++part) {
        const Turn<Shape> turn{row, part};
        const bool new_slot = row % Shape::kSlotRows == 0 && part == Turn<Shape>::begin(row);
        const bool last_of_slot = row % Shape::kSlotRows == Shape::kSlotRows - 1 && part == Turn<Shape>::kEnd - 1;
        if (new_slot) {
          weights->wait_full();
          b = ptx::MatrixDescriptor::of(s_weights + weights->slot() * Shape::kSlotBytes, Shape::kN * 16, 128);
        }
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          Half<Shape>& half = halves[block];
          ptx::wgmma_wait<1>();  // this block's products are done
          half.keep();
          add_runs<Shape>(sums, half, before, block);
          if (turn.writes()) write_fragments<Shape>(half, words, turn, block, zero);
          ptx::wgmma_fence();
          multiply_turn<Shape>(half, turn, b);
          ptx::wgmma_commit();
          if (new_slot && block == 1 && used != 0) leave(used);
        }
        before = turn;
        if (last_of_slot) {
          used = weights->empty();
          weights->advance();
        }
        const bool last_to_write = Shape::kAllPhases ? part == Turn<Shape>::begin(row) : part == Turn<Shape>::kEnd - 1;
        if (!last_to_write) continue;
        // While these products run: the next row's words.
        if (row < Shape::kRows - 1) {
          load_row(row + 1);
        } else {
          leave(sources->empty());
          sources->advance();
#ifndef HEAD
          if (chunk + 1 < chunks.end) {
            sources->wait_full();
            load_row(0);
          }
#endif
        }
      }
    }
  };
#ifdef UNROLL3
#pragma unroll 1
  for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    multiply_stage(chunk);
}
#elif defined(UNROLL2)
  int32_t chunk = chunks.begin;
#pragma unroll 1
  for (; chunk + 1 < chunks.end; chunk += 2) {
    multiply_stage(chunk);
    multiply_stage(chunk + 1);
    ptx::wgmma_wait<0>();
  }
  if (chunk < chunks.end) multiply_stage(chunk);
#else
#pragma unroll 1
  for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    multiply_stage(chunk);
    ptx::wgmma_wait<0>();
  }
#endif
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    halves[block].keep();
    add_runs<Shape>(sums, halves[block], kLast, block);
  }
  leave(used);
}

#endif

}  // namespace convt::strided_sm90a
