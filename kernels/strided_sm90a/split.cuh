// The strided engine's products of split operands (tf32x3): each operand is the sum of two TF32 numbers, and of their
// four products three are taken.
//
// Tensor cores round their sums toward zero, so that they add runs of 32 terms at most, which go on in float32
// registers. Whatever instructions run beside the products take their time, so that there are as few as can be.
#pragma once

#include "strided_sm90a/mainloop.cuh"

namespace convt::strided_sm90a {

#ifdef CONVT_HAS_WGMMA

// The order of products. A round is a stage, or a row of the gradient's. Its fragments are two sets: of the two rows,
// or of the row's even and odd columns. Products are issued in turns, each for one block of positions after the other.
template <typename Shape>
struct Turns {
  static constexpr bool kAllPhases = Shape::kAllPhases;
  static constexpr bool kTwoPhases = Shape::kOutput && !kAllPhases;
  static constexpr int kRounds = Shape::kOutput ? 1 : Shape::kRows;
  static constexpr int kCount = kAllPhases ? 4 : 2;
  static constexpr int kRuns = kTwoPhases ? 2 : 1;  // of a block

  // Whether its runs begin here, or go on.
  static __device__ constexpr bool begins(int turn) { return kAllPhases || turn == 0; }
  // Of a 3 x 3 kernel those of both rows come first.
  static __device__ constexpr int phase(int turn, int run) { return kAllPhases ? kCount - 1 - turn : run; }
  static __device__ constexpr bool reads(int turn, int set) { return kAllPhases ? turn < 2 || set == 0 : set == turn; }
  // Products of a run with a set.
  static __device__ constexpr int taps(int turn, int set) {
    if (kAllPhases) return 1 + phase(turn, 0) % 2;
    return Shape::kOutput ? 2 : (Shape::kKernel - set + 1) / 2;
  }
  // Of the first block.
  static __device__ constexpr int fragment(int turn, int run, int tap) {
    if (kAllPhases) return phase(turn, 0) % 2 - tap;
    return Shape::kOutput ? 1 + run - tap : tap;
  }
  // In the slot's weights.
  static __device__ constexpr int place(int turn, int set, int run, int tap) {
    if (kTwoPhases) return 4 * run + 2 * (1 - set) + tap;
    if (!kAllPhases) return 2 * set + tap;
    const int first[4] = {0, 1, 4 - set, 7 - 2 * set};
    return first[phase(turn, 0)] + tap;
  }
};

template <typename Shape>
struct FragmentSet {
  Fragments<Shape> high, low;
};

// A number as the sum of two of TF32. Of the second one tensor cores leave out the bits that TF32 does not have; an
// infinity's is NaN.
__device__ __forceinline__ void write_split(uint32_t& high, uint32_t& low, uint32_t word) {
  ptx::write_fragment_tf32(high, word);
  ptx::write_fragment_rest(low, word, high);
}

// Behind the wait for the products that read the set. Some columns are in two fragments. ptxas would convert them once,
// and then copy every fragment for every product that reads it: `zero` is 0, which it does not know.
template <typename Shape>
__device__ __forceinline__ void write_set(FragmentSet<Shape>& set, const Words<Shape>& words, int number,
                                          uint32_t zero) {
  keep<Shape>(set.high);
  keep<Shape>(set.low);
#pragma unroll
  for (int f = 0; f < Shape::kFragments; ++f) {
    const int column = fragment_column<Shape>(number, f);
    if (column < 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (f >= 2 && i % 2 == 0) {
        ptx::write_fragment(set.high[f][i], set.high[f - 2][i + 1] ^ zero);
        ptx::write_fragment(set.low[f][i], set.low[f - 2][i + 1] ^ zero);
      } else {
        write_split(set.high[f][i], set.low[f][i], words[i / 2][column + i % 2 * 2 * Shape::kStep]);
      }
    }
  }
}

// Accumulators of one block that tensor cores add.
template <typename Shape>
using Runs = float[Turns<Shape>::kRuns][Shape::kN / 2];

// Behind the wait for the turn's products of the block.
template <typename Shape>
__device__ __forceinline__ void add_runs(Accumulators<Shape>& sums, Runs<Shape>& runs, int turn, int block) {
#pragma unroll
  for (int run = 0; run < Turns<Shape>::kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) {
      ptx::keep_accumulator(runs[run][i]);
      sums.r[Turns<Shape>::phase(turn, run)][block][i] += runs[run][i];
    }
  }
}

// Small products first: the smaller a sum, the less its rounding. `b` is the slot's begin.
template <typename Shape>
__device__ __forceinline__ void multiply_turn(Runs<Shape>& runs, const FragmentSet<Shape> (&sets)[2],
                                              const ptx::MatrixDescriptor& b, int turn, int block) {
  using Turns = Turns<Shape>;
  constexpr uint32_t kTap = Shape::kTapBytes / 16;
  bool add = !Turns::begins(turn);
#pragma unroll
  for (int product = 0; product < 3; ++product) {  // low * high, high * low, high * high
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      if (!Turns::reads(turn, set)) continue;
#pragma unroll
      for (int tap = 0; tap < Turns::taps(turn, set); ++tap) {
#pragma unroll
        for (int run = 0; run < Turns::kRuns; ++run) {
          const int f = Turns::fragment(turn, run, tap) + block;
          const uint32_t place = Turns::place(turn, set, run, tap) * kTap + (product == 1 ? kTap / 2 : 0);
          ptx::wgmma_tf32(runs[run], product == 0 ? sets[set].low[f] : sets[set].high[f], b.moved(place), add);
        }
        add = true;
      }
    }
  }
}

// All products of a tile.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& sums, const Params& params, const Quad& quad,
                                                    const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                                    uint32_t s_zeros, Ring* sources, Ring* weights) {
  using Turns = Turns<Shape>;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Runs<Shape> runs[2] = {};
  FragmentSet<Shape> sets[2];
  uint32_t used = 0;  // the barrier of the weights before the newest
  clear<Shape>(sums);
  Words<Shape> words;
  const auto load = [&](int row) {
    load_row<Shape>(words, params, quad, s_source + sources->slot() * params.stage_bytes, s_zeros, row);
  };
  const auto leave_source = [&] {
    release(sources->empty());
    sources->advance();
  };
  // Before the first products: the sets that no turn of the round before them writes.
  sources->wait_full();
  if constexpr (Turns::kAllPhases) {
    load(1);
    write_set<Shape>(sets[1], words, 1, zero);
  }
  load(0);
  write_set<Shape>(sets[0], words, 0, zero);
  if constexpr (Turns::kTwoPhases) load(1);
  if constexpr (Turns::kAllPhases) leave_source();

#pragma unroll 1
  for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const bool goes_on = chunk + 1 < chunks.end;
#pragma unroll
    for (int round = 0; round < Turns::kRounds; ++round) {
      weights->wait_full();
      const auto b = ptx::MatrixDescriptor::of(s_weights + weights->slot() * Shape::kSlotBytes, Shape::kN * 16, 128);
#pragma unroll
      for (int turn = 0; turn < Turns::kCount; ++turn) {
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if (Turns::begins(turn)) {
            ptx::wgmma_wait<1>();  // this block's products are done
            add_runs<Shape>(sums, runs[block], (turn + Turns::kCount - 1) % Turns::kCount, block);
          }
          ptx::wgmma_fence();
          multiply_turn<Shape>(runs[block], sets, b, turn, block);
          ptx::wgmma_commit();
        }
        if (turn == 0 && used != 0) release(used);
        // While these products run: the fragments of others, and what of the source follows.
        if constexpr (Turns::kAllPhases) {
          if (turn == 0 && goes_on) {
            sources->wait_full();
            load(1);
          }
          if (turn == 2) {
            ptx::wgmma_wait<2>();
            write_set<Shape>(sets[1], words, 1, zero);
            if (goes_on) load(0);
          }
        } else if (turn == 0) {
          write_set<Shape>(sets[1], words, 1, zero);
          if (round + 1 < Turns::kRounds) {
            load(round + 1);
          } else {
            leave_source();
            if (goes_on) {
              sources->wait_full();
              load(0);
            }
          }
        }
      }
      // ptxas serializes all products where sums in flight from one stage to the next are read, or this set is written
      // while its round's last products run. The other warpgroup's run meanwhile.
      ptx::wgmma_wait<0>();
      used = weights->empty();
      weights->advance();
      write_set<Shape>(sets[0], words, 0, zero);
      if constexpr (Turns::kTwoPhases) {
        if (goes_on) load(1);
      }
      if constexpr (Turns::kAllPhases) {
        if (goes_on) leave_source();
      }
    }
  }
#pragma unroll
  for (int block = 0; block < 2; ++block) add_runs<Shape>(sums, runs[block], Turns::kCount - 1, block);
  release(used);
}

#endif

}  // namespace convt::strided_sm90a
