// Main loop of tf32x3: three TF32 products per product.
#pragma once

#include "nhwc_sm90a/mainloop.cuh"

namespace convt::nhwc_sm90a {

#ifdef CONVT_HAS_WGMMA

// tf32x3 operands are sums of two TF32 numbers, a high and a low term, and a product is three TF32 products. Tensor
// cores round accumulators toward zero. Therefore only the products of one tap and stage, 32 at most, are accumulated
// there; these runs are added in float32 registers. The fragments below hold one half of a run.
template <typename Shape>
using SplitFragments = element::Terms<Fragments<Shape>>;

// Iterates over the taps of a tile: windows, chunks of channels, taps.
class TileTaps {
 public:
  __device__ __forceinline__ TileTaps(int32_t first_window, const Stages& stages)
      : stages_left_(stages.end - stages.begin), next_(stages.walk(first_window)), taps_left_(1) {}

  // Advances to the next tap and waits for its box. Returns false after the last tap.
  __device__ __forceinline__ bool advance(const Params& params, uint32_t s_source, const Ring& sources) {
    if (--taps_left_ > 0) {
      taps_.advance();
      return true;
    }
#pragma unroll 1
    for (; stages_left_ > 0; --stages_left_) {
      const Window& window = params.windows[next_.window];
      next_.advance(params);
      taps_left_ = window.num_h * window.num_w;
      if (taps_left_ == 0) continue;
      taps_.begin(window);
      sources.wait_full();
      s_box_ = s_source + sources.slot() * params.stage_bytes;
      --stages_left_;
      return true;
    }
    return false;
  }

  __device__ __forceinline__ bool ends_stage() const { return taps_left_ == 1; }
  __device__ __forceinline__ int32_t place() const { return taps_.place(); }
  __device__ __forceinline__ uint32_t box() const { return s_box_; }

 private:
  int32_t stages_left_;  // after this one
  StageWalk next_;
  int32_t taps_left_;  // remaining taps of the stage, including this one
  TapWalk taps_;
  uint32_t s_box_;
};

// Loads the fragments of one half of a run.
template <typename Shape>
__device__ __forceinline__ void load_half(SplitFragments<Shape>& fragments, const TileTaps& taps,
                                          const int32_t (&places)[Shape::kBlocks], int half) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    const uint32_t row = places[block] + taps.place();
    const uint32_t s_row = taps.box() + row * Shape::kRowBytes;
    const uint32_t swizzle = ptx::tensor_swizzle(Shape::kRowBytes, row, threadIdx.x % 32 / 16) * 16;
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      uint32_t words[4];
      ptx::load_matrices(words, s_row + (swizzle ^ (half * Shape::kGroupSteps + step) * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        element::write_terms(fragments.high[step][block][i], fragments.low[step][block][i], words[i]);
      }
    }
  }
}

// Issues the products of one half of a run. Small products come first, because a smaller accumulator rounds less.
template <typename Shape>
__device__ __forceinline__ void multiply_half(Accumulators<Shape>& runs, const SplitFragments<Shape>& fragments,
                                              const ptx::MatrixDescriptor& weights, int half) {
  ptx::wgmma_fence();
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      const ptx::MatrixDescriptor high = weights.moved((half * Shape::kGroupSteps + step) * 2);
      const ptx::MatrixDescriptor low = high.moved(Shape::kTermBytes / 16);
      ptx::wgmma_tf32(runs.r[block], fragments.low[step][block], high, half + step > 0);
      ptx::wgmma_tf32(runs.r[block], fragments.high[step][block], low, true);
    }
#pragma unroll
    for (int step = 0; step < Shape::kGroupSteps; ++step) {
      const ptx::MatrixDescriptor high = weights.moved((half * Shape::kGroupSteps + step) * 2);
      ptx::wgmma_tf32(runs.r[block], fragments.high[step][block], high, true);
    }
  }
  ptx::wgmma_commit();
}

template <typename Shape>
__device__ __forceinline__ void add_runs(Accumulators<Shape>& acc, Accumulators<Shape>& runs) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < Shape::kN / 2; ++i) {
      element::fence_registers(runs.r[block][i]);
      acc.r[block][i] = __fadd_rn(acc.r[block][i], runs.r[block][i]);
    }
  }
}

// All products of a tile of tf32x3, accumulated in the order of windows, chunks of channels, taps. Each tap is a run.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params,
                                                    int32_t first_window, const Stages& stages,
                                                    const int32_t (&places)[Shape::kBlocks], uint32_t s_source,
                                                    uint32_t s_weights, Ring* sources, Ring* weights) {
  SplitFragments<Shape> first, second;  // halves of a run
  Accumulators<Shape> runs;
  element::clear(acc.r);
  TileTaps taps(first_window, stages);
  bool goes_on = taps.advance(params, s_source, *sources);
  if (goes_on) load_half<Shape>(first, taps, places, 0);
#pragma unroll 1
  while (goes_on) {
    weights->wait_full();
    const auto b = ptx::MatrixDescriptor::of_rows(s_weights + weights->slot() * Shape::kTapBytes, Shape::kRowBytes);
    multiply_half<Shape>(runs, first, b, 0);
    // A scheduling fence that waits for nothing. Without it ptxas converts the second half's fragments before these
    // products, which is better only if the products are short.
    if constexpr (Shape::kN == 128) ptx::wgmma_wait<1>();
    load_half<Shape>(second, taps, places, 1);
    multiply_half<Shape>(runs, second, b, 1);
    // Load the first half of the next run while these products execute.
    if (taps.ends_stage()) {
      release(sources->empty());
      sources->advance();
    }
    goes_on = taps.advance(params, s_source, *sources);
    ptx::wgmma_wait<1>();
    element::fence_registers(first);
    if (goes_on) load_half<Shape>(first, taps, places, 0);
    // ptxas serializes all products if accumulators in flight are read across the loop's back edge. The other warpgroup
    // fills the tensor cores meanwhile.
    ptx::wgmma_wait<0>();
    element::fence_registers(second);
    add_runs<Shape>(acc, runs);
    release(weights->empty());
    weights->advance();
  }
}

#endif

}  // namespace convt::nhwc_sm90a
