// Main loops of `strided`. GEMM rows are positions, with operand A in registers. Columns are result channels.
#pragma once

#include "pipeline/ring.cuh"
#include "rows_sm90a/strided_tile.cuh"

namespace convt::rows_sm90a::strided {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;
using pipeline::Ring;

// Taps of a phase that read a set of fragments. A set is one of two source rows (forward), or the even or odd columns
// of a row (gradient).
template <typename Shape>
struct Taps {
  // In a 3 x 3 kernel the first H phase reads only row 0.
  static __device__ constexpr bool reads(int phase, int set) { return !Shape::kAllPhases || phase >= 2 || set == 0; }
  static __device__ constexpr int count(int phase, int set) {
    if (Shape::kAllPhases) return 1 + phase % 2;
    return Shape::kOutput ? 2 : (Shape::kKernel - set + 1) / 2;
  }
  // Fragment that block 0 reads; block 1 reads the next one. Forward: taps are in the order of descending shift.
  static __device__ constexpr int fragment(int phase, int tap) {
    if (Shape::kAllPhases) return phase % 2 - tap;
    return Shape::kOutput ? 1 + phase - tap : tap;
  }
  // Index of the tap in a slot's weights.
  static __device__ constexpr int place(int phase, int set, int tap) {
    const int first[4] = {0, 1, 4 - set, 7 - 2 * set};
    if (Shape::kAllPhases) return first[phase] + tap;
    return Shape::kOutput ? 4 * phase + 2 * (1 - set) + tap : 2 * set + tap;
  }
};

// Issues the products of a set of fragments. `b`: start of the slot's weights.
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

// Loads the thread's columns of a row. Rows outside the source are read from a block of zeros.
template <typename Shape>
__device__ __forceinline__ void load_row(Words<Shape>& words, const Params& params, const Quad& quad, uint32_t s_stage,
                                         uint32_t s_zeros, int row) {
  const bool exists = quad.rows >> row & 1;
  const uint32_t s_row = s_stage + row * params.row_bytes + quad.source;
  load_words<Shape>(words, exists ? s_row : s_zeros + 16, quad, exists ? params.channel_bytes : 0);
}

// All products of a tile, or of alternate stages from number `first` on, accumulated in the order of stages, rows, even
// and odd columns (gradient), taps.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, const Quad& quad,
                                              const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                              uint32_t s_zeros, Ring* sources, Ring* weights, int32_t first) {
  constexpr int kStep = Shape::kAlternate ? kStridedConsumers : 1;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Fragments<Shape> fragments[2];
  uint32_t used = 0;  // empty barrier of the previous weight slot, which products in flight may read
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
      ptx::wgmma_wait<1>();  // the previous products that read these registers are complete
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
      // While these products run, load the next row.
      if (row < Shape::kRows - 1) {
        load(row + 1);
      } else {
        release(sources->empty());
        sources->advance();
        if constexpr (kStep > 1) {  // skip the stage of the other warpgroup
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

// Order of products of split operands (tf32x3). Each operand is a sum of two TF32 numbers, and three of the four
// products are computed. Tensor cores round accumulators toward zero. They therefore add runs of at most 32 terms,
// which are added in float32 registers. Other instructions delay products, so this loop has as few as possible.
//
// A round is a stage or, in the gradient, a row of a stage. It has two sets of fragments. Products are issued in
// passes, first for block 0, then for block 1.
template <typename Shape>
struct Passes {
  static constexpr bool kAllPhases = Shape::kAllPhases;
  static constexpr bool kTwoPhases = Shape::kOutput && !kAllPhases;
  static constexpr int kRounds = Shape::kOutput ? 1 : Shape::kRows;
  static constexpr int kCount = kAllPhases ? 4 : 2;
  static constexpr int kRuns = kTwoPhases ? 2 : 1;  // per block

  // Whether the pass starts new runs.
  static __device__ constexpr bool begins(int pass) { return kAllPhases || pass == 0; }
  // In a 3 x 3 kernel, phases that read both rows come first.
  static __device__ constexpr int phase(int pass, int run) { return kAllPhases ? kCount - 1 - pass : run; }
  static __device__ constexpr bool reads(int pass, int set) {
    return kAllPhases ? Taps<Shape>::reads(phase(pass, 0), set) : set == pass;
  }
};

template <typename Shape>
using FragmentSet = element::Terms<Fragments<Shape>>;

// Writes a set. Call after the wait for the products that read it. Some columns are in two fragments. `zero` is 0 but
// opaque to ptxas, which would otherwise convert them once and copy every fragment for every product that reads it.
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

// Run accumulators of one block, written by tensor cores.
template <typename Shape>
using Runs = float[Passes<Shape>::kRuns][Shape::kN / 2];

// Adds the runs of a block. Call after the wait for its products of the pass.
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

// Issues a pass for one block. Small products come first, because smaller accumulators have smaller rounding errors.
// `b`: start of the slot's weights.
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

// All products of a tile in tf32x3.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params, const Quad& quad,
                                                    const Chunks& chunks, uint32_t s_source, uint32_t s_weights,
                                                    uint32_t s_zeros, Ring* sources, Ring* weights) {
  using Passes = Passes<Shape>;
  const uint32_t zero = static_cast<uint32_t>(params.num_chunks) >> 31;
  Runs<Shape> runs[2] = {};
  FragmentSet<Shape> sets[2];
  uint32_t used = 0;  // empty barrier of the previous round's weights
  element::clear(acc.r);
  Words<Shape> words;
  const auto load = [&](int row) {
    load_row<Shape>(words, params, quad, s_source + sources->slot() * params.stage_bytes, s_zeros, row);
  };
  const auto release_source = [&] {
    release(sources->empty());
    sources->advance();
  };
  // The first round needs the sets that later rounds take over from the round before them.
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
            ptx::wgmma_wait<1>();  // this block's products are complete
            add_runs<Shape>(acc, runs[block], (pass + Passes::kCount - 1) % Passes::kCount, block);
          }
          ptx::wgmma_fence();
          multiply_pass<Shape>(runs[block], sets, b, pass, block);
          ptx::wgmma_commit();
        }
        if (pass == 0 && used != 0) release(used);
        // While these products run, write other fragments and load the source rows that follow.
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
      // ptxas serializes all products if accumulators that are in flight across stages are read, or if this set is
      // written while the last products of its round run. The other warpgroup's products run meanwhile.
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
