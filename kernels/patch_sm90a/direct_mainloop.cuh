// The products of the kernel for weights as they are. Weights are the first operand, in registers: four neighbouring
// columns of a channel, a quad, are read at once and are rows of two products. Positions are the second operand.
#pragma once

#include "patch_sm90a/direct_params.h"
#include "pipeline/ring.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// This thread's part of a tile: sum 4 * j + 2 * h + i of product t is column 2 * t + h of the thread's quad, position
// 8 * j + 2 * (lane % 4) + i.
struct DirectSums {
  float r[2][kDirectPositions / 2];
};

// Which of a warp's eight quads lane / 4 has. In float32 two neighbours are far from each other, so that eight lanes
// meet all banks.
template <typename Element>
__device__ __forceinline__ int32_t quad_of(int32_t of_warp) {
  return sizeof(Element) == 4 ? of_warp % 2 * 4 + of_warp / 2 : of_warp;
}

// The quads of a stage that this thread reads: of one or two neighbouring channels of every eight or sixteen.
template <typename Element>
struct Quads {
  uint32_t s_first[2];  // in the first stage

  __device__ __forceinline__ explicit Quads(uint32_t s_weights) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const uint32_t quad = static_cast<uint32_t>(quad_of<Element>(static_cast<int32_t>(lane / 4)));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(Element) == 4) {
        const uint32_t row = lane % 4 + 4 * i;  // boxes are of 32 channels, a warp has one
        s_first[i] = s_weights + warp * 4096 + row * 128 + ptx::tensor_swizzle(128, row, quad) * 16;
      } else {
        const uint32_t row = lane % 4 * 2 + i;  // boxes are of 64 channels, a warp has half of one
        s_first[i] = s_weights + warp / 2 * 8192 + row * 128 +
                     ptx::tensor_swizzle(128, row, warp % 2 * 4 + quad / 2) * 16 + quad % 2 * 8;
      }
    }
  }
};

// From one step of K to the next: eight or sixteen channels of a box.
template <typename Element>
inline constexpr uint32_t kDirectStepBytes = 128 * 32 / sizeof(Element);

// The first operand of both products of a step of K.
using DirectFragments = uint32_t[2][4];
using DirectWords = uint32_t[8];

template <typename Element>
__device__ __forceinline__ void load_words(DirectWords& words, const Quads<Element>& quads, uint32_t step_offset) {
  constexpr int kQuad = sizeof(Element);  // words
#pragma unroll
  for (int i = 0; i < 8 / kQuad; ++i) {
    uint32_t quad[kQuad];
    ptx::load_shared(quad, quads.s_first[i % 2] + step_offset + i / 2 * 1024);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) words[kQuad * i + k] = quad[k];
  }
}

template <typename Element>
__device__ __forceinline__ void to_operand(DirectFragments& fragments, const DirectWords& words) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int t = i / 4, half = i / 2 % 2, h = i % 2;
    if constexpr (sizeof(Element) == 4) {
      ptx::write_fragment_tf32(fragments[t][2 * half + h], words[4 * half + 2 * t + h]);
    } else {
      // Two columns of each of two channels -> two channels of each of two columns.
      ptx::write_fragment_halves(fragments[t][2 * half + h], words[4 * half + t], words[4 * half + 2 + t], h == 1);
    }
  }
}

__device__ __forceinline__ void keep(DirectFragments (&fragments)[kDirectSteps]) {
#pragma unroll
  for (int i = 0; i < kDirectSteps * 8; ++i) ptx::keep_fragment(fragments[i / 8][i / 4 % 2][i % 4]);
}

// Of a stage's fragments. With two of them one is made while products read the other; of half precision ptxas would
// then wait for every product by itself (C7513).
template <typename Element>
inline constexpr int kDirectSets = sizeof(Element) == 4 ? 2 : 1;

// A tile's weights and all their products; s_positions: the warpgroup's in the first plane. The sums' order: stages,
// steps of K.
template <typename Element, int kConsumers>
__device__ __forceinline__ void multiply_direct(DirectSums& sums, const DirectParams& params, uint32_t s_positions,
                                                uint32_t s_source_barriers, const Quads<Element>& quads,
                                                Ring* weights) {
  constexpr int kPlane = kDirectPositions * kConsumers;  // units of 16 bytes
  constexpr int kSets = kDirectSets<Element>;
  auto b = ptx::MatrixDescriptor::of(s_positions, kPlane * 16, 128);
  DirectFragments fragments[kSets][kDirectSteps] = {};
#pragma unroll 1
  for (int32_t begin = 0; begin < params.num_chunks; begin += kSets) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int32_t chunk = begin + set;
      if (set > 0 && chunk == params.num_chunks) break;
      weights->wait_full();
      ptx::mbarrier_wait(s_source_barriers + 8 * chunk, 0);  // the source is there once and for all tiles
      const uint32_t offset = weights->slot() * kDirectStageBytes;
      if constexpr (kSets == 2) {
        ptx::wgmma_wait<1>();  // the products of this set's last fragments are done
        keep(fragments[set]);
#pragma unroll
        for (int step = 0; step < kDirectSteps; ++step) {
          DirectWords words;  // read before the wait, these would make ptxas wait for every product (C7513)
          load_words(words, quads, offset + step * kDirectStepBytes<Element>);
          to_operand<Element>(fragments[set][step], words);
        }
      } else {
        DirectWords words[kDirectSteps];
#pragma unroll
        for (int step = 0; step < kDirectSteps; ++step) {
          load_words(words[step], quads, offset + step * kDirectStepBytes<Element>);
        }
        ptx::wgmma_wait<0>();
        keep(fragments[set]);
#pragma unroll
        for (int step = 0; step < kDirectSteps; ++step) to_operand<Element>(fragments[set][step], words[step]);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kDirectSteps; ++step) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          ptx::wgmma<Element>(sums.r[t], fragments[set][step][t], b.moved(2 * step * kPlane), chunk > 0 || step > 0);
        }
      }
      ptx::wgmma_commit();
      pipeline::release(weights->empty());  // its words are in registers
      weights->advance();
      b = b.moved(2 * kDirectSteps * kPlane);
    }
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int set = 0; set < kSets; ++set) keep(fragments[set]);
}

// One thread: stages [begin, end) of the CTA's.
template <typename Element>
__device__ __forceinline__ void load_direct_weights(const DirectParams& params, int32_t first_tile, int32_t begin,
                                                    int32_t end, uint32_t s_weights, Ring* ring) {
  constexpr int32_t kRow = 128 / static_cast<int32_t>(sizeof(Element));
  int32_t tile = begin / params.num_chunks, chunk = begin % params.num_chunks;
  for (int32_t stage = begin; stage < end; ++stage) {
    ring->wait_empty();  // the consumers have read what was here
    ptx::mbarrier_expect(ring->full(), kDirectStageBytes);
    const int32_t at[4] = {0, chunk * kRow, (first_tile + tile) * (kDirectColumns / kRow), 0};
    ptx::tensor_copy(s_weights + ring->slot() * kDirectStageBytes, &params.weights, at, ring->full());
    ring->advance();
    if (++chunk == params.num_chunks) chunk = 0, ++tile;
  }
}

#endif

}  // namespace convt::patch_sm90a
