// The gradient of the input in class tf32x3: operands are sums of two TF32 numbers, split in registers, and a term is
// three products.
#pragma once

#include "mma_sm90a/grad_input_mainloop.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Of the low part tensor cores leave out the bits that TF32 does not have; an infinity's is NaN.
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

inline constexpr int kRunSteps = 2;  // whose products are one run

template <typename Traits>
struct RunOperands {
  SourceFragments<Traits> source[kRunSteps];
  uint32_t weight[kRunSteps][Traits::kColumnTiles][4];
};

// Tensor cores round sums toward zero: they add a run, the small products first, and runs are added in float32
// registers.
template <typename Traits, int kSteps>
__device__ __forceinline__ void multiply_run(Accumulators<Traits>& r_sums, const RunOperands<Traits>& operands) {
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
      for (int i = 0; i < 4; ++i) r_sums[m][n][i] = element::add(r_sums[m][n][i], run[m][i]);
    }
  }
}

template <typename Traits, bool kVector, bool kMasked, int kSteps>
__device__ __forceinline__ void load_and_multiply_run(Accumulators<Traits>& r_sums, const GradInputOperands<Traits>& operands,
                                                      int32_t step) {
  RunOperands<Traits> r;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    load_source<Traits, kVector, kMasked>(r.source[i], operands, step + i);
    load_weight<Traits, kVector>(r.weight[i], operands, step + i);
  }
  multiply_run<Traits, kSteps>(r_sums, r);
}

// Steps first .. end. Nothing is read ahead: other warps multiply meanwhile, and registers are few.
template <typename Traits, bool kVector, bool kMasked>
__device__ __forceinline__ void multiply_split_steps(Accumulators<Traits>& r_sums, const GradInputOperands<Traits>& operands,
                                                     int32_t first, int32_t end) {
  int32_t step = first;
#pragma unroll 1
  for (; step + kRunSteps <= end; step += kRunSteps) {
    load_and_multiply_run<Traits, kVector, kMasked, kRunSteps>(r_sums, operands, step);
  }
  if (step < end) load_and_multiply_run<Traits, kVector, kMasked, 1>(r_sums, operands, step);
}

#endif

}  // namespace convt::mma_sm90a
