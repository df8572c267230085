// The scatter engine's products of class tf32x3: operands are sums of two TF32 numbers, and a term is three products.
#pragma once

#include "scatter_sm90a/mainloop.cuh"

namespace convt::scatter_sm90a {

#ifdef CONVT_HAS_WGMMA

// Of the low part tensor cores leave out the bits that TF32 does not have; an infinity's is NaN.
template <typename Shape>
__device__ __forceinline__ void make_split_fragments(uint32_t (&high)[4], uint32_t (&low)[4],
                                                     const Words<Shape>& source) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ptx::write_fragment_tf32(high[i], source.words[i]);
    ptx::write_fragment_rest(low[i], source.words[i], high[i]);
  }
}

// All products of a source row. Tensor cores round their sums toward zero: a batch's, the small ones first, are a run
// of 32 terms, and runs are added in float32 registers.
template <typename Shape>
__device__ __forceinline__ void multiply_split_row(Accumulators<Shape>& sums, const Params& params, uint32_t s_mine,
                                                   uint32_t channel_bytes, const ptx::MatrixDescriptor& weights,
                                                   Ring* ring) {
  auto b = weights;
  const uint32_t low_weights = params.steps * 2 * Shape::kN;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    ring->wait_full();
    uint32_t s_step = s_mine + ring->slot() * params.stage_bytes;
#pragma unroll 1
    for (int32_t left = params.chunk_steps; left > 0; left -= kScatterBatch) {
      uint32_t high[kScatterBatch][4], low[kScatterBatch][4];
#pragma unroll
      for (int i = 0; i < kScatterBatch; ++i) {
        Words<Shape> words;
        if constexpr (Shape::kChannelsLast) {
          ptx::load_matrices(words.words, s_step ^ 32 * i);
        } else {
          words.load(s_step, channel_bytes);
          s_step += Shape::kStepChannels * channel_bytes;
        }
        make_split_fragments<Shape>(high[i], low[i], words);
      }
      Accumulators<Shape> run;
      ptx::wgmma_fence();
#pragma unroll
      for (int product = 0; product < 3; ++product) {  // low * high, high * low, high * high
#pragma unroll
        for (int i = 0; i < kScatterBatch; ++i) {
          const auto step = b.moved(i * 2 * Shape::kN);
          ptx::wgmma_tf32(run, product == 0 ? low[i] : high[i], product == 1 ? step.moved(low_weights) : step,
                          product + i > 0);
        }
      }
      ptx::wgmma_commit();
      b = b.moved(kScatterBatch * 2 * Shape::kN);
      if (left == kScatterBatch) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ring->empty());
      }
      ptx::wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < kScatterBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          ptx::keep_fragment(high[i][j]);
          ptx::keep_fragment(low[i][j]);
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kN / 2; ++i) {
        ptx::keep_accumulator(run[i]);
        sums[i] = element::add(sums[i], run[i]);
      }
    }
    ring->advance();
  }
}

#endif

}  // namespace convt::scatter_sm90a
