// The patch engine's products. Positions are the first operand, in registers: a fragment is read from a stage as it
// lies, in either layout, and TF32 is rounded on the way. Weights are the second operand, in blocks of 64 columns.
#pragma once

#include "patch_sm90a/weights.cuh"
#include "ptx/shared.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::release;

// The first operand of each step of K in a stage.
using Fragments = uint32_t[kPatchSteps][4];

// The words of a stage that this thread's fragments are made of, from `s_mine` on.
template <typename Shape>
__device__ __forceinline__ void load_words(Fragments& words, uint32_t s_mine) {
  constexpr int kRow = Shape::kRowBytes;
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
    if constexpr (Shape::kForm == PatchForm::kGatherQuads) {
      // Four columns of a row of a patch are the halves of two steps, for each half of the channels.
      if (step % 2 == 1) continue;
      const uint32_t s_step = s_mine + step / 2 * Shape::Traits::kChannels * kRow;
      uint32_t quads[2][4];
      if constexpr (Shape::Traits::kFloat32) {
#pragma unroll
        for (int i = 0; i < 2; ++i) ptx::load_shared(quads[i], s_step + i * kQuadsOddBegin<Shape>);
#pragma unroll
        for (int i = 0; i < 8; ++i) words[step + i / 4][i % 4] = quads[i % 2][i / 2];
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) ptx::load_shared(quads[i], s_step + i * kRow);
#pragma unroll
        for (int i = 0; i < 8; ++i) words[step + i / 4][i % 4] = quads[i % 2][i % 4 / 2 * 2 + i / 4];
      }
    } else if constexpr (Shape::kGathers) {
      // Two rows of a patch are neighbouring rows of the stage; a pair's two columns are the halves of a step.
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
    } else if constexpr (Shape::Traits::kFloat32) {
      uint32_t pair[2][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) ptx::load_shared(pair[i], s_mine + (8 * step + 4 * i) * kRow);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[step][i] = pair[i / 2][i % 2];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[step][i] = ptx::load_shared(s_mine + (16 * step + i / 2 * 8 + i % 2) * kRow);
    }
  }
}

// Where this thread's words begin in a stage, of its warpgroup's positions.
template <typename Shape>
__device__ __forceinline__ uint32_t words_begin(int32_t first_position) {
  const auto quad = static_cast<uint32_t>(threadIdx.x) % 4;
  const auto position = static_cast<uint32_t>(first_position + position_of_thread<Shape>(0));
  if constexpr (Shape::kByChannels) return position * Shape::kRowBytes + quad * 4;
  if constexpr (Shape::kForm == PatchForm::kGatherQuads) {
    if constexpr (Shape::Traits::kFloat32) return quad * Shape::kRowBytes + position / 2 * 16;
    return quad * 2 * Shape::kRowBytes + position * 8;
  }
  if constexpr (Shape::kGathers) {
    return quad * (Shape::Traits::kFloat32 ? 1 : 2) * 2 * Shape::kRowBytes + position * 2 * Shape::kElement;
  }
  return quad * (Shape::Traits::kFloat32 ? 1 : 2) * Shape::kRowBytes + position * Shape::kElement;
}

// Products read their fragments while they are in flight, so that the registers are written here and not a moment
// sooner. ptxas does not know: a plain copy of a word it would do without, and load the next stage's words into the
// fragments. `zero` is 0, which it does not know either.
template <typename Shape>
__device__ __forceinline__ void to_operand(Fragments& fragments, const Fragments& words, uint32_t zero) {
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t word = words[step][i];
      if constexpr (Shape::Traits::kFloat32) {
        word = __float_as_uint(ptx::round_tf32(__uint_as_float(word)));
      } else if constexpr (Shape::kByChannels) {
        word ^= zero;
      } else if constexpr (Shape::kGathers) {
        // Two columns of each of two channels, of one and the other position -> two channels of each of them.
        word = __byte_perm(words[step][i % 2 * 2], words[step][i % 2 * 2 + 1], i < 2 ? 0x5410 : 0x7632);
      } else {
        // Two positions of each of two channels -> two channels of each of two positions.
        word = __byte_perm(words[step][i / 2 * 2], words[step][i / 2 * 2 + 1], i % 2 == 0 ? 0x5410 : 0x7632);
      }
      ptx::write_fragment(fragments[step][i], word);
    }
  }
}

__device__ __forceinline__ void keep(Fragments& fragments) {
#pragma unroll
  for (int step = 0; step < kPatchSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::keep_fragment(fragments[step][i]);
  }
}

// Where a step of K of a block begins in a slot of weights, and from there its low parts, in 16 bytes. Where patches
// are gathered, a step has a plane of each of two taps, of [tap][part][2 planes].
template <typename Shape>
__device__ constexpr uint32_t weights_place(int block, int step) {
  constexpr uint32_t kPlane = kPatchChannels, kTapPlanes = 2 * Shape::Traits::kTerms;
  const uint32_t first = block * (Shape::kBlockBytes / 16);
  if constexpr (Shape::kGathers) return first + step % 2 * 2 * kTapPlanes * kPlane + step / 2 * kPlane;
  return first + step * 2 * kPlane;
}
template <typename Shape>
inline constexpr uint32_t kLowWeights = Shape::kGathers ? 2 * kPatchChannels : kPatchBlockBytes / 16;

// The weights of a slot.
template <typename Shape>
__device__ __forceinline__ ptx::MatrixDescriptor weights_of(uint32_t s_weights, int32_t slot) {
  constexpr uint32_t kAlongK = (Shape::kGathers ? 2 * Shape::Traits::kTerms : 1) * kPatchChannels * 16;
  return ptx::MatrixDescriptor::of(s_weights + slot * Shape::kSlotBlocks * Shape::kBlockBytes, kAlongK, 128);
}

// All products of a tile. The sums' order: stages, steps of K.
template <typename Shape>
__device__ __forceinline__ void multiply_tile(Accumulators<Shape>& sums, const Params& params, int32_t num_stages,
                                              bool first_tile, int32_t consumer, uint32_t s_source, uint32_t s_weights,
                                              Ring* sources, Ring* weights) {
  const uint32_t s_mine = s_source + words_begin<Shape>(consumer * params.step);
  Fragments fragments{};
  uint32_t used = 0;  // the barrier of the weights that products in flight read
#pragma unroll 1
  for (int32_t chunk = 0; chunk < num_stages; ++chunk) {
    Fragments words;
    sources->wait_full();
    load_words<Shape>(words, s_mine + sources->slot() * Shape::kStageBytes);
    release(sources->empty());
    sources->advance();
    ptx::wgmma_wait<0>();
    keep(fragments);
    if (used != 0) release(used);
    to_operand<Shape>(fragments, words, static_cast<uint32_t>(params.num_chunks) >> 31);
    if (first_tile || !params.resident) weights->wait_full();
    const ptx::MatrixDescriptor b = weights_of<Shape>(s_weights, weights->slot());
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPatchSteps; ++step) {
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block) {
        ptx::wgmma<typename Shape::Traits::Element>(sums.r[block], fragments[step],
                                                    b.moved(weights_place<Shape>(block, step)), chunk > 0 || step > 0);
      }
    }
    ptx::wgmma_commit();
    used = params.resident ? 0 : weights->empty();
    weights->advance();
  }
  ptx::wgmma_wait<0>();
  keep(fragments);
  if (used != 0) release(used);
}

#endif

}  // namespace convt::patch_sm90a
