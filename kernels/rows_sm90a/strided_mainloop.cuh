// The strided engine's products: positions are the rows, in registers, result channels the columns.
#pragma once

#include "pipeline/ring.cuh"
#include "rows_sm90a/strided_tile.cuh"

namespace convt::rows_sm90a::strided {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// Which taps a phase's accumulators have of a set of fragments: of row number `set` of the output's two, or of the even
// or the odd columns of a row of the gradient's.
template <typename Shape>
struct Taps {
  // In a 3 x 3 kernel the first H phase reads row 0 alone.
  static __device__ constexpr bool reads(int phase, int set) { return !Shape::kAllPhases || phase >= 2 || set == 0; }
  static __device__ constexpr int count(int phase, int set) {
    if (Shape::kAllPhases) return 1 + phase % 2;
    return Shape::kOutput ? 2 : (Shape::kKernel - set + 1) / 2;
  }
  // The fragment that the first block of positions reads; the second block reads the next one. Taps of an output come
  // in the order of descending shift.
  static __device__ constexpr int fragment(int phase, int tap) {
    if (Shape::kAllPhases) return phase % 2 - tap;
    return Shape::kOutput ? 1 + phase - tap : tap;
  }
  // The tap's number in the slot's weights.
  static __device__ constexpr int place(int phase, int set, int tap) {
    const int first[4] = {0, 1, 4 - set, 7 - 2 * set};
    if (Shape::kAllPhases) return first[phase] + tap;
    return Shape::kOutput ? 4 * phase + 2 * (1 - set) + tap : 2 * set + tap;
  }
};

// The products of one set of fragments. `b` is the begin of the slot's weights.
template <typename Shape>
__device__ __forceinline__ void multiply_set(Accumulators<Shape>& acc, const Fragments<Shape>& fragments,
                                             const ptx::MatrixDescriptor& b, int set) {
  using Taps = Taps<Shape>;
#pragma unroll
  for (int phase = 0; phase < Shape::kPhases; ++phase) {
    if (!Taps::reads(phase, set)) continue;
#pragma unroll
    for (int tap = 0; tap < Taps::count(phase, set); ++tap) {
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        ptx::wgmma<typename Shape::Element>(acc.r[phase][block], fragments[Taps::fragment(phase, tap) + block],
                                            b.moved(Taps::place(phase, set, tap) * (Shape::kTapBytes / 16)), true);
      }
    }
  }
}

// The thread's columns of a row. Rows beside the source are read from 64 bytes of zeros.
template <typename Shape>
__device__ __forceinline__ void load_row(Words<Shape>& words, const Params& params, const Quad& quad, uint32_t s_stage,
                                         uint32_t s_zeros, int row) {
  const bool exists = quad.rows >> row & 1;
  const uint32_t s_row = s_stage + row * params.row_bytes + quad.source;
  load_words<Shape>(words, exists ? s_row : s_zeros + 16, quad, exists ? params.channel_bytes : 0);
}

// All products of a tile, or of every other stage from number `first` on, added in the order of stages, rows, taps,
// steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, const Quad& quad,
                                              const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                              uint32_t s_zeros, Ring* sources, Ring* weights, int32_t first) {
  constexpr int kStep = Shape::kAlternate ? kStridedConsumers : 1;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // the barrier of the weights before those of the newest products
  element::clear(acc.r);
  Words<Shape> words;
  const auto load = [&](int row) {
    load_row<Shape>(words, params, quad, s_source + sources->slot() * params.stage_bytes, s_zeros, row);
  };
  if constexpr (Shape::kAlternate) {
    element::fence_registers(acc.r);
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
      element::fence_registers(mine);
      to_fragments<Shape>(mine, words, group, zero);
      ptx::wgmma_fence();
      multiply_set<Shape>(acc, mine, b, Shape::kOutput ? row : group);
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
        if constexpr (kStep > 1) {  // the next stages are the other warpgroup's
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
  element::fence_registers(fragments);
  if constexpr (Shape::kAlternate) element::fence_registers(acc.r);
  release(used);
}

// The order of products of split operands (tf32x3): each operand is the sum of two TF32 numbers, and of their four
// products three are taken. Tensor cores round their sums toward zero, so that they add runs of 32 terms at most, which
// go on in float32 registers. Whatever instructions run beside the products take their time, so that there are as few
// as can be.
//
// A round is a stage, or a row of the gradient's. It has two sets of fragments. Products are issued in passes, each for
// one block of positions after the other.
template <typename Shape>
struct Passes {
  static constexpr bool kAllPhases = Shape::kAllPhases;
  static constexpr bool kTwoPhases = Shape::kOutput && !kAllPhases;
  static constexpr int kRounds = Shape::kOutput ? 1 : Shape::kRows;
  static constexpr int kCount = kAllPhases ? 4 : 2;
  static constexpr int kRuns = kTwoPhases ? 2 : 1;  // of a block

  // Whether its runs begin here or go on.
  static __device__ constexpr bool begins(int pass) { return kAllPhases || pass == 0; }
  // Of a 3 x 3 kernel those of both rows come first.
  static __device__ constexpr int phase(int pass, int run) { return kAllPhases ? kCount - 1 - pass : run; }
  static __device__ constexpr bool reads(int pass, int set) {
    return kAllPhases ? Taps<Shape>::reads(phase(pass, 0), set) : set == pass;
  }
};

template <typename Shape>
using FragmentSet = element::Terms<Fragments<Shape>>;

// Writes a set, behind the wait for the products that read it. Some columns are in two fragments. ptxas would convert
// them once, and then copy every fragment for every product that reads it: `zero` is 0, which it does not know.
template <typename Shape>
__device__ __forceinline__ void write_set(FragmentSet<Shape>& set, const Words<Shape>& words, int number,
                                          uint32_t zero) {
  element::fence_registers(set);
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
        element::write_terms(set.high[f][i], set.low[f][i], words[i / 2][column + i % 2 * 2 * Shape::kStep]);
      }
    }
  }
}

// Accumulators of one block that tensor cores add.
template <typename Shape>
using Runs = float[Passes<Shape>::kRuns][Shape::kN / 2];

// Behind the wait for the pass's products of the block.
template <typename Shape>
__device__ __forceinline__ void add_runs(Accumulators<Shape>& acc, Runs<Shape>& runs, int pass, int block) {
#pragma unroll
  for (int run = 0; run < Passes<Shape>::kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) {
      element::fence_registers(runs[run][i]);
      acc.r[Passes<Shape>::phase(pass, run)][block][i] += runs[run][i];
    }
  }
}

// The small products come first: the smaller a sum, the less its rounding. `b` is the slot's begin.
template <typename Shape>
__device__ __forceinline__ void multiply_pass(Runs<Shape>& runs, const FragmentSet<Shape> (&sets)[2],
                                              const ptx::MatrixDescriptor& b, int pass, int block) {
  using Passes = Passes<Shape>;
  using Taps = Taps<Shape>;
  constexpr uint32_t kTap = Shape::kTapBytes / 16;
  bool add = !Passes::begins(pass);
#pragma unroll
  for (int product = 0; product < 3; ++product) {  // low * high, high * low, high * high
#pragma unroll
    for (int set = 0; set < 2; ++set) {
      if (!Passes::reads(pass, set)) continue;
#pragma unroll
      for (int tap = 0; tap < Taps::count(Passes::phase(pass, 0), set); ++tap) {
#pragma unroll
        for (int run = 0; run < Passes::kRuns; ++run) {
          const int phase = Passes::phase(pass, run), f = Taps::fragment(phase, tap) + block;
          const uint32_t place = Taps::place(phase, set, tap) * kTap + (product == 1 ? kTap / 2 : 0);
          ptx::wgmma_tf32(runs[run], product == 0 ? sets[set].low[f] : sets[set].high[f], b.moved(place), add);
        }
        add = true;
      }
    }
  }
}

// All products of a tile of tf32x3.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params, const Quad& quad,
                                                    const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                                    uint32_t s_zeros, Ring* sources, Ring* weights) {
  using Passes = Passes<Shape>;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Runs<Shape> runs[2] = {};
  FragmentSet<Shape> sets[2];
  uint32_t used = 0;  // the barrier of the weights before the newest
  element::clear(acc.r);
  Words<Shape> words;
  const auto load = [&](int row) {
    load_row<Shape>(words, params, quad, s_source + sources->slot() * params.stage_bytes, s_zeros, row);
  };
  const auto release_source = [&] {
    release(sources->empty());
    sources->advance();
  };
  // Before the first products: the sets that no pass of a round before them writes.
  sources->wait_full();
  if constexpr (Passes::kAllPhases) {
    load(1);
    write_set<Shape>(sets[1], words, 1, zero);
  }
  load(0);
  write_set<Shape>(sets[0], words, 0, zero);
  if constexpr (Passes::kTwoPhases) load(1);
  if constexpr (Passes::kAllPhases) release_source();

#pragma unroll 1
  for (int32_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const bool goes_on = chunk + 1 < chunks.end;
#pragma unroll
    for (int round = 0; round < Passes::kRounds; ++round) {
      weights->wait_full();
      const auto b = ptx::MatrixDescriptor::of(s_weights + weights->slot() * Shape::kSlotBytes, Shape::kN * 16, 128);
#pragma unroll
      for (int pass = 0; pass < Passes::kCount; ++pass) {
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          if (Passes::begins(pass)) {
            ptx::wgmma_wait<1>();  // this block's products are done
            add_runs<Shape>(acc, runs[block], (pass + Passes::kCount - 1) % Passes::kCount, block);
          }
          ptx::wgmma_fence();
          multiply_pass<Shape>(runs[block], sets, b, pass, block);
          ptx::wgmma_commit();
        }
        if (pass == 0 && used != 0) release(used);
        // While these products run: the fragments of others, and what of the source follows.
        if constexpr (Passes::kAllPhases) {
          if (pass == 0 && goes_on) {
            sources->wait_full();
            load(1);
          }
          if (pass == 2) {
            ptx::wgmma_wait<2>();
            write_set<Shape>(sets[1], words, 1, zero);
            if (goes_on) load(0);
          }
        } else if (pass == 0) {
          write_set<Shape>(sets[1], words, 1, zero);
          if (round + 1 < Passes::kRounds) {
            load(round + 1);
          } else {
            release_source();
            if (goes_on) {
              sources->wait_full();
              load(0);
            }
          }
        }
      }
      // ptxas serializes all products where accumulators in flight from one stage to the next are read, or this set is
      // written while its round's last products run. The other warpgroup's run meanwhile.
      ptx::wgmma_wait<0>();
      used = weights->empty();
      weights->advance();
      write_set<Shape>(sets[0], words, 0, zero);
      if constexpr (Passes::kTwoPhases) {
        if (goes_on) load(1);
      }
      if constexpr (Passes::kAllPhases) {
        if (goes_on) release_source();
      }
    }
  }
#pragma unroll
  for (int block = 0; block < 2; ++block) add_runs<Shape>(acc, runs[block], Passes::kCount - 1, block);
  release(used);
}

#endif

}  // namespace convt::rows_sm90a::strided
