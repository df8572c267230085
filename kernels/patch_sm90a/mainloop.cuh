// Main loops of the patch kernel. Positions are operand A in registers: fragments are read from a stage in the layout
// of global memory, and float32 is rounded to TF32. Weights are operand B, in blocks of 64 columns. In tf32x3 operands
// are sums of two TF32 numbers, and a product of two operands is three products.
#pragma once

#include "element/registers.cuh"
#include "patch_sm90a/loader.cuh"
#include "ptx/shared.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;

// Operand A of each step of K in a stage.
using Fragments = uint32_t[kPatchSteps][4];

// Loads the words of a step of K in NCHW, where a thread's two positions are adjacent.
template <typename Shape>
__device__ __forceinline__ void load_pairs(uint32_t (&words)[4], uint32_t s_mine, int step) {
  constexpr int kRow = Shape::kRowBytes;
  if constexpr (Shape::kElement == 4) {
    uint32_t pair[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) ptx::load_shared(pair[i], s_mine + (8 * step + 4 * i) * kRow);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pair[i / 2][i % 2];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = ptx::load_shared(s_mine + (16 * step + i / 2 * 8 + i % 2) * kRow);
  }
}

// Loads the words of a stage for this thread's fragments, starting at `s_mine`.
template <typename Shape>
__device__ __forceinline__ void load_words(Fragments& words, uint32_t s_mine) {
  constexpr int kRow = Shape::kRowBytes;
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    if constexpr (Shape::kGathers) {
      // Two rows of a patch are adjacent rows of the stage. The two columns of a pair belong to the two halves of a
      // step.
      const uint32_t s_step = s_mine + (step / 2 * (Shape::Traits::kChannels * 2) + step % 2) * kRow;
      if constexpr (Shape::Traits::kFloat32) {
        uint32_t pairs[4];
        ptx::load_shared(pairs, s_step);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[step][i] = pairs[i % 2 * 2 + i / 2];
      } else {
        uint32_t pairs[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) ptx::load_shared(pairs[i], s_step + i * 2 * kRow);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[step][i] = pairs[i % 2][i / 2];
      }
    } else if constexpr (Shape::kByChannels) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[step][i] = ptx::load_shared(s_mine + i % 2 * 8 * kRow + 32 * step + i / 2 * 16);
    } else if constexpr (!Shape::kNeighbours) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[step][i] = ptx::load_shared(s_mine + (8 * step + i / 2 * 4) * kRow + i % 2 * 32);
    } else {
      load_pairs<Shape>(words[step], s_mine, step);
    }
  }
}

// Byte offset of this thread's words in a stage, for its warpgroup's positions.
template <typename Shape>
__device__ __forceinline__ uint32_t words_begin(int32_t first_position) {
  const auto quad = threadIdx.x % 4;
  const auto position = static_cast<uint32_t>(first_position + position_of_thread<Shape>(0));
  const uint32_t channel = quad * (Shape::Traits::kFloat32 ? 1 : 2);
  if constexpr (Shape::kForm == PatchForm::kChannels) {
    return position * Shape::kRowBytes + quad * 4;
  } else if constexpr (Shape::kForm == PatchForm::kGather) {
    return channel * 2 * Shape::kRowBytes + position * 2 * Shape::kElement;
  } else {
    return channel * Shape::kRowBytes + position * Shape::kElement;
  }
}

// Converts words to the fragment of a step of K. `zero` is 0, but opaque to ptxas.
template <typename Shape>
__device__ __forceinline__ void to_operand(uint32_t (&fragment)[4], const uint32_t (&words)[4], uint32_t zero) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Shape::Traits::kFloat32 || Shape::kForm == PatchForm::kChannels) {
      element::write_fragment<typename Shape::Element>(fragment[i], words[i], zero);
    } else {
      // Transposes two positions of each of two channels to two channels of each of two positions. If the kernel
      // gathers: two columns of two channels of each position to two channels of each column.
      const int first = Shape::kGathers ? i % 2 * 2 : i / 2 * 2;
      ptx::write_fragment_halves(fragment[i], words[first], words[first + 1], Shape::kGathers ? i >= 2 : i % 2 == 1);
    }
  }
}

// Offset of a step of K of a block in a weight slot, and below it the distance to its low terms, in units of 16 bytes.
// If the kernel gathers, a step has a plane of each of two taps, in the order [tap][term][2 planes].
template <typename Shape>
__device__ constexpr uint32_t weights_place(int block, int step) {
  constexpr uint32_t kPlane = kPatchChannels, kTapPlanes = 2 * Shape::Traits::kTerms;
  const uint32_t first = block * (Shape::kBlockBytes / 16);
  if constexpr (Shape::kGathers) return first + step % 2 * 2 * kTapPlanes * kPlane + step / 2 * kPlane;
  return first + step * 2 * kPlane;
}
template <typename Shape>
inline constexpr uint32_t kLowWeights = Shape::kGathers ? 2 * kPatchChannels : kPatchBlockBytes / 16;

// Descriptor of a weight slot.
template <typename Shape>
__device__ __forceinline__ ptx::MatrixDescriptor weights_of(uint32_t s_weights, int32_t slot) {
  constexpr uint32_t kAlongK = (Shape::kGathers ? 2 * Shape::Traits::kTerms : 1) * kPatchChannels * 16;
  return ptx::MatrixDescriptor::of(s_weights + slot * Shape::kSlotBlocks * Shape::kBlockBytes, kAlongK, 128);
}

// All products of a tile, accumulated in the order of stages and steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& acc, const Params& params, int32_t num_stages,
                                              bool first_tile, int32_t consumer, uint32_t s_source, uint32_t s_weights,
                                              Ring* sources, Ring* weights) {
  const uint32_t s_mine = s_source + words_begin<Shape>(consumer * params.step);
  Fragments fragments{};
  uint32_t used = 0;  // empty barrier of the weights that products in flight may read
#pragma unroll 1
  for (int32_t chunk = 0; chunk < num_stages; ++chunk) {
    Fragments words;
    sources->wait_full();
    load_words<Shape>(words, s_mine + sources->slot() * Shape::kStageBytes);
    release(sources->empty());
    sources->advance();
    ptx::wgmma_wait<0>();
    element::fence_registers(fragments);
    if (used != 0) release(used);
#pragma unroll
    for (int step = 0; step < kPatchSteps; ++step) {
      to_operand<Shape>(fragments[step], words[step], static_cast<uint32_t>(params.num_chunks) >> 31);
    }
    if (first_tile || !params.resident) weights->wait_full();
    const ptx::MatrixDescriptor b = weights_of<Shape>(s_weights, weights->slot());
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPatchSteps; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(acc.r[block], fragments[step],
                                                    b.moved(weights_place<Shape>(block, step)), chunk > 0 || step > 0);
      }
    }
    ptx::wgmma_commit();
    used = params.resident ? 0 : weights->empty();
    weights->advance();
  }
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
  if (used != 0) release(used);
}

// Splits words into terms. Infinities have no low term, as in element::low_term().
__device__ __forceinline__ void to_terms(Fragments& high, Fragments& low, const Fragments& words) {
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

// A stage's products of a block. Small products come first, because a smaller accumulator rounds less.
template <typename Shape>
__device__ __forceinline__ void multiply_terms(float (&stage)[kPatchChannels / 2], const Fragments& high,
                                               const Fragments& low, const ptx::MatrixDescriptor& b) {
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    const ptx::MatrixDescriptor b_high = b.moved(weights_place<Shape>(0, step));
    ptx::wgmma<typename Shape::Traits::Element>(stage, low[step], b_high, step > 0);
    ptx::wgmma<typename Shape::Traits::Element>(stage, high[step], b_high.moved(kLowWeights<Shape>), true);
  }
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    ptx::wgmma<typename Shape::Traits::Element>(stage, high[step], b.moved(weights_place<Shape>(0, step)), true);
  }
  ptx::wgmma_commit();
}

// All products of a tile in tf32x3. Tensor cores round accumulators toward zero, so the products of each stage are
// added to the others in float32 registers. If registers permit, a block's products execute while those of the previous
// block are added.
template <typename Shape>
__device__ __forceinline__ void multiply_split_tile(Accumulators<Shape>& acc, const Params& params, int32_t num_stages,
                                                    bool first_tile, int32_t consumer, uint32_t s_source,
                                                    uint32_t s_weights, Ring* sources, Ring* weights) {
  constexpr int kSets = Shape::kSets;
  const uint32_t s_mine = s_source + words_begin<Shape>(consumer * params.step);
  element::clear(acc.r);
  Fragments high{}, low{};
  float stage[kSets][kPatchChannels / 2];
#pragma unroll 1
  for (int32_t chunk = 0; chunk < num_stages; ++chunk) {
    Fragments words;
    sources->wait_full();
    load_words<Shape>(words, s_mine + sources->slot() * Shape::kStageBytes);
    release(sources->empty());
    sources->advance();
    to_terms(high, low, words);
    uint32_t used[Shape::kBlocks];  // empty barriers of the weights
#pragma unroll
    for (int block = 0; block < Shape::kBlocks + kSets - 1; ++block) {
      if (block < Shape::kBlocks) {
        if (first_tile || !params.resident) weights->wait_full();
        multiply_terms<Shape>(stage[block % kSets], high, low, weights_of<Shape>(s_weights, weights->slot()));
        used[block] = weights->empty();
        weights->advance();
      }
      const int done = block - kSets + 1;
      if (done < 0) continue;
      if (block < Shape::kBlocks) {
        ptx::wgmma_wait<kSets - 1>();
      } else {
        ptx::wgmma_wait<0>();
      }
      if (done == Shape::kBlocks - 1) {
        element::fence_registers(high);
        element::fence_registers(low);
      }
      if (!params.resident) release(used[done]);
#pragma unroll
      for (int i = 0; i < kPatchChannels / 2; ++i) acc.r[done][i] += stage[done % kSets][i];
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
