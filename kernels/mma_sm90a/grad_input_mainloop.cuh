// Main loop of the gradient of the input. A warp multiplies one unit, row tiles of channels x position tiles, over the
// steps of K of a stage. Operand B is read from the unmodified grad_output in the stage; taps outside are masked to
// zero.
#pragma once

#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/traits.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Addresses of a lane's operands in a stage.
template <typename Traits>
struct GradInputOperands {
  uint32_t s_position[Traits::kPositionTiles];  // byte offsets from s_stage
  uint32_t outside[Traits::kPositionTiles];     // bit masks of taps outside the image
  uint32_t s_stage;
  uint32_t s_offsets;  // the lane's table of offsets, first step
  uint32_t masks;      // bytes from s_offsets to the table of masks
  uint32_t s_weight;  // the lane's weights of its unit's first row tile, first step
  uint32_t weight_step;  // bytes
};

// Operand B before rounding to TF32.
template <typename Traits>
using SourceFragments = uint32_t[Traits::kPositionTiles][2];

template <typename Traits, bool kMasked>
__device__ __forceinline__ void load_source(SourceFragments<Traits>& r, const GradInputOperands<Traits>& operands,
                                            int32_t step) {
  constexpr int kElements = Traits::kPlaneChannels;
  const uint32_t s_offsets = operands.s_offsets + step * 16 * kElements;
  uint32_t offset[kElements], mask[kElements] = {};
  ptx::load_shared(offset, s_offsets);
  if constexpr (kMasked) ptx::load_shared(mask, s_offsets + operands.masks);
#pragma unroll
  for (int e = 0; e < kElements; ++e) offset[e] += operands.s_stage;
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    const auto keeps = [&](int e) { return !kMasked || (mask[e] & operands.outside[n]) == 0; };
    const uint32_t s_position = operands.s_position[n];
    if constexpr (kElements == 2) {
      r[n][0] = ptx::load_shared(s_position + offset[0]), r[n][1] = ptx::load_shared(s_position + offset[1]);
    } else {
      uint32_t half[kElements];
#pragma unroll
      for (int e = 0; e < kElements; ++e) half[e] = ptx::load_shared_16(s_position + offset[e]);
      r[n][0] = __byte_perm(half[0], half[1], 0x5410), r[n][1] = __byte_perm(half[2], half[3], 0x5410);
    }
    if constexpr (kMasked) {
      if constexpr (kElements == 2) {
        r[n][0] = keeps(0) ? r[n][0] : 0, r[n][1] = keeps(1) ? r[n][1] : 0;
      } else {
        r[n][0] &= (keeps(0) ? 0xffffu : 0) | (keeps(1) ? 0xffff0000u : 0);
        r[n][1] &= (keeps(2) ? 0xffffu : 0) | (keeps(3) ? 0xffff0000u : 0);
      }
    }
  }
}

template <typename Traits>
__device__ __forceinline__ void load_weight(uint32_t (&r)[Traits::kColumnTiles][4],
                                            const GradInputOperands<Traits>& operands, int32_t step) {
  const uint32_t s_weight = operands.s_weight + step * operands.weight_step;
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) ptx::load_shared(r[m], s_weight + m * 512);
}

template <typename Traits>
__device__ __forceinline__ void multiply_step(Accumulators<Traits>& r_acc, SourceFragments<Traits>& r_source,
                                              uint32_t (&r_weight)[Traits::kColumnTiles][4]) {
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    if constexpr (sizeof(typename Traits::Element) == 4) {
#pragma unroll
      for (uint32_t& word : r_source[n]) word = __float_as_uint(ptx::round_tf32(__uint_as_float(word)));
    }
#pragma unroll
    for (int m = 0; m < Traits::kColumnTiles; ++m) Traits::multiply(r_acc[m][n], r_weight[m], r_source[n]);
  }
}

// Multiplies steps [first, end). Operands are loaded one step ahead.
template <typename Traits, bool kMasked>
  requires(!Traits::kSplit)
__device__ __forceinline__ void multiply_steps(Accumulators<Traits>& r_acc, const GradInputOperands<Traits>& operands,
                                               int32_t first, int32_t end) {
  if (first >= end) return;
  SourceFragments<Traits> r_even, r_odd;
  uint32_t r_weight[Traits::kColumnTiles][4], r_odd_weight[Traits::kColumnTiles][4];
  load_source<Traits, kMasked>(r_even, operands, first);
  load_weight<Traits>(r_weight, operands, first);
#pragma unroll 1
  for (int32_t step = first;; step += 2) {
    if (step + 1 < end) {
      load_source<Traits, kMasked>(r_odd, operands, step + 1);
      load_weight<Traits>(r_odd_weight, operands, step + 1);
    }
    multiply_step<Traits>(r_acc, r_even, r_weight);
    if (step + 1 >= end) break;
    if (step + 2 < end) {
      load_source<Traits, kMasked>(r_even, operands, step + 2);
      load_weight<Traits>(r_weight, operands, step + 2);
    }
    multiply_step<Traits>(r_acc, r_odd, r_odd_weight);
    if (step + 2 >= end) break;
  }
}

// tf32x3: an operand is split in registers into the sum of two TF32 numbers, a high and a low term. A product of
// operands is three products of terms. Tensor cores ignore the bits of the low term beyond TF32. The low term of an
// infinity is NaN.
template <int kCount>
__device__ __forceinline__ void split_words(uint32_t (&high)[kCount], uint32_t (&low)[kCount],
                                            const uint32_t (&words)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float value = __uint_as_float(words[i]), rounded = ptx::round_tf32(value);
    high[i] = __float_as_uint(rounded);
    low[i] = __float_as_uint(__fsub_rn(value, rounded));
  }
}

inline constexpr int kRunSteps = 2;  // steps of K per run

template <typename Traits>
struct RunOperands {
  SourceFragments<Traits> source[kRunSteps];
  uint32_t weight[kRunSteps][Traits::kColumnTiles][4];
};

// Tensor cores round accumulators toward zero. Therefore they only accumulate one run, the small products first, and
// runs are added in float32 registers.
template <typename Traits, int kSteps>
__device__ __forceinline__ void multiply_run(Accumulators<Traits>& r_acc, const RunOperands<Traits>& operands) {
  constexpr int kRows = Traits::kColumnTiles;
  uint32_t high[kSteps][kRows][4], low[kSteps][kRows][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) split_words(high[step][m], low[step][m], operands.weight[step][m]);
  }
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    uint32_t source_high[kSteps][2], source_low[kSteps][2];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      split_words(source_high[step], source_low[step], operands.source[step][n]);
    }
    float run[kRows][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int m = 0; m < kRows; ++m) Traits::multiply(run[m], high[step][m], source_low[step]);
#pragma unroll
      for (int m = 0; m < kRows; ++m) Traits::multiply(run[m], low[step][m], source_high[step]);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int m = 0; m < kRows; ++m) Traits::multiply(run[m], high[step][m], source_high[step]);
    }
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) r_acc[m][n][i] = element::add(r_acc[m][n][i], run[m][i]);
    }
  }
}

template <typename Traits, bool kMasked, int kSteps>
__device__ __forceinline__ void load_and_multiply_run(Accumulators<Traits>& r_acc,
                                                      const GradInputOperands<Traits>& operands, int32_t step) {
  RunOperands<Traits> r;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    load_source<Traits, kMasked>(r.source[i], operands, step + i);
    load_weight<Traits>(r.weight[i], operands, step + i);
  }
  multiply_run<Traits, kSteps>(r_acc, r);
}

// Multiplies steps [first, end). Operands are not prefetched, because registers would spill. Other warps hide latency.
template <typename Traits, bool kMasked>
  requires(Traits::kSplit)
__device__ __forceinline__ void multiply_steps(Accumulators<Traits>& r_acc, const GradInputOperands<Traits>& operands,
                                               int32_t first, int32_t end) {
  int32_t step = first;
#pragma unroll 1
  for (; step + kRunSteps <= end; step += kRunSteps) {
    load_and_multiply_run<Traits, kMasked, kRunSteps>(r_acc, operands, step);
  }
  if (step < end) load_and_multiply_run<Traits, kMasked, 1>(r_acc, operands, step);
}

#endif

}  // namespace convt::mma_sm90a
