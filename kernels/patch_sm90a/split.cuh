// The patch engine's products of class tf32x3: operands as sums of two TF32 numbers, three products for each.
#pragma once

#include "patch_sm90a/mainloop.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Infinities have no low part, as in element::low_term().
__device__ __forceinline__ void to_parts(Fragments& high, Fragments& low, const Fragments& words) {
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = __uint_as_float(words[step][i]), rounded = ptx::round_tf32(value);
      const float rest = value - rounded;
      ptx::write_fragment(high[step][i], __float_as_uint(rounded));
      ptx::write_fragment(low[step][i], __float_as_uint(fabsf(rest) < INFINITY ? ptx::round_tf32(rest) : 0.0f));
    }
  }
}

// A stage's products of a block. The small ones first: they are added to what is small.
template <typename Shape>
__device__ __forceinline__ void multiply_parts(float (&run)[kPatchChannels / 2], const Fragments& high,
                                               const Fragments& low, const ptx::MatrixDescriptor& b) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    const ptx::MatrixDescriptor b_high = b.moved(weights_place<Shape>(0, step));
    ptx::wgmma<typename Shape::Traits::Element>(run, low[step], b_high, step > 0);
    ptx::wgmma<typename Shape::Traits::Element>(run, high[step], b_high.moved(kLowWeights<Shape>), true);
  }
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    ptx::wgmma<typename Shape::Traits::Element>(run, high[step], b.moved(weights_place<Shape>(0, step)), true);
  }
  ptx::wgmma_commit();
}

// All products of a tile. Tensor cores round their sums toward zero: a stage's are added in float32 registers. With as
// many registers as there are, a block's products are in flight while the ones before are added.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& sums, const Params& params, int32_t num_stages,
                                                    bool first_tile, int32_t consumer, uint32_t s_source,
                                                    uint32_t s_weights, Ring* sources, Ring* weights) {
  constexpr int kRuns = Shape::kRuns;
  const uint32_t s_mine = s_source + words_begin<Shape>(consumer * params.step);
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kPatchChannels / 2; ++i) sums.r[block][i] = 0;
  }
  Fragments high{}, low{};
  float run[kRuns][kPatchChannels / 2];
#pragma unroll 1
  for (int32_t chunk = 0; chunk < num_stages; ++chunk) {
    Fragments words;
    sources->wait_full();
    load_words<Shape>(words, s_mine + sources->slot() * Shape::kStageBytes);
    release(sources->empty());
    sources->advance();
    to_parts(high, low, words);
    uint32_t used[Shape::kBlocks];  // the barriers of the weights
#pragma unroll
    for (int block = 0; block < Shape::kBlocks + kRuns - 1; ++block) {
      if (block < Shape::kBlocks) {
        if (first_tile || !params.resident) weights->wait_full();
        multiply_parts<Shape>(run[block % kRuns], high, low, weights_of<Shape>(s_weights, weights->slot()));
        used[block] = weights->empty();
        weights->advance();
      }
      const int done = block - kRuns + 1;
      if (done < 0) continue;
      if (block < Shape::kBlocks) {
        ptx::wgmma_wait<kRuns - 1>();
      } else {
        ptx::wgmma_wait<0>();
      }
      if (done == Shape::kBlocks - 1) {
        keep(high);
        keep(low);
      }
      if (!params.resident) release(used[done]);
#pragma unroll
      for (int i = 0; i < kPatchChannels / 2; ++i) sums.r[done][i] += run[done % kRuns][i];
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
