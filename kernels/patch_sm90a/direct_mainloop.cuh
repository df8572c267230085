// Pipeline and main loop of patch_direct. Weights are operand A, in registers: a quad, four contiguous columns of a
// channel, is one load and provides rows of two products. Positions are operand B: the source, [channel][position] in
// global memory, is transposed to planes of [position][16 bytes of channels] in shared memory, and float32 is rounded
// to TF32.
#pragma once

#include "element/operand.cuh"
#include "element/registers.cuh"
#include "patch_sm90a/params.h"
#include "pipeline/ring.cuh"
#include "ptx/global.cuh"
#include "ptx/operand_layout.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

using pipeline::Ring;

// All threads of the CTA synchronize here, each role from its own call site. Afterwards the mbarriers are initialized.
template <int kConsumers>
__device__ __forceinline__ void meet_all_roles() {
  ptx::named_barrier_of_roles(1, direct_threads(kConsumers));
}

// How the 128 threads of a warpgroup share a stage: each loads one or two adjacent positions of a few planes.
template <typename ElementValue, int kConsumersValue, int kTogetherValue>
struct SourceShape {
  using Element = ElementValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kTogether = kTogetherValue;
  static constexpr int kPositions = kDirectPositions * kConsumers;
  static constexpr int kChannels = 16 / kElement;  // per plane
  static constexpr int kStagePlanes = 2 * kDirectSteps;
  static constexpr int kPlaneThreads = kPositions / kTogether;
  static constexpr int kSide = 128 / kPlaneThreads;  // planes that the warpgroup loads in parallel
  static constexpr int kPlanes = kStagePlanes / kSide;
  static constexpr int kWords = kElement * kTogether == 8 ? 2 : 1;  // per channel
  // Stages in flight at once, limited by registers.
  static constexpr int kRegisters = kPlanes * kChannels * kWords;
  static constexpr int kBatch = kRegisters > 32 ? 1 : (kConsumers == 2 ? 64 : 48) / kRegisters;
};

template <typename Shape>
struct SourceWords {
  uint32_t r[Shape::kPlanes][Shape::kChannels][Shape::kWords];

  // Loads from this thread's first channel of a stage on; zeros for missing channels.
  __device__ __forceinline__ void load(const typename Shape::Element* g_first, int64_t channel_step, int32_t channels) {
#pragma unroll
    for (int plane = 0; plane < Shape::kPlanes; ++plane) {
#pragma unroll
      for (int channel = 0; channel < Shape::kChannels; ++channel) {
        const int number = plane * Shape::kSide * Shape::kChannels + channel;
        const auto* g = g_first + number * channel_step;
        if constexpr (Shape::kWords == 2) {
          ptx::load_global_or_zero(r[plane][channel], g, number < channels);
        } else if constexpr (Shape::kElement * Shape::kTogether == 4) {
          r[plane][channel][0] = ptx::load_global_or_zero(g, number < channels);
        } else {
          r[plane][channel][0] = ptx::load_global_16_or_zero(g, number < channels);
        }
      }
    }
  }

  // Collects 16 bytes of channels of one position.
  __device__ __forceinline__ void gather(uint32_t (&words)[4], int plane, int position) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Shape::kElement == 4) {
        words[i] = __float_as_uint(ptx::round_tf32(__uint_as_float(r[plane][i][position])));
      } else {
        words[i] = __byte_perm(r[plane][2 * i][0], r[plane][2 * i + 1][0], position == 0 ? 0x5410 : 0x7632);
      }
    }
  }

  __device__ __forceinline__ void store(uint32_t s_mine) const {
#pragma unroll
    for (int plane = 0; plane < Shape::kPlanes; ++plane) {
      const uint32_t s_plane = s_mine + plane * Shape::kSide * Shape::kPositions * 16;
      uint32_t first[4];
      gather(first, plane, 0);
      if constexpr (Shape::kTogether == 1) {
        ptx::store_shared(s_plane, first);
      } else {
        uint32_t second[4];
        gather(second, plane, 1);
        // Every other group of four lanes starts with the second position, so that eight lanes access all banks.
        const bool swapped = threadIdx.x % 8 >= 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t word = first[i];
          first[i] = swapped ? second[i] : word;
          second[i] = swapped ? word : second[i];
        }
        ptx::store_shared(s_plane + (swapped ? 16 : 0), first);
        ptx::store_shared(s_plane + (swapped ? 0 : 16), second);
      }
    }
  }
};

// One warpgroup loads the source of a CTA's positions, once for all tiles. Its first loads are issued before the CTA's
// barriers are initialized.
template <typename Shape>
__device__ __forceinline__ void load_direct_source(const DirectParams& params, int32_t begin, uint32_t s_source,
                                                   uint32_t s_barriers) {
  using Element = typename Shape::Element;
  constexpr int kBatch = Shape::kBatch, kStageChannels = Shape::kStagePlanes * Shape::kChannels;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % 128;
  const int32_t of_tile = thread % Shape::kPlaneThreads * Shape::kTogether, side = thread / Shape::kPlaneThreads;
  const int32_t position = begin + of_tile, first_channel = side * Shape::kChannels;
  int32_t place;
  const int32_t image = params.by_image(min(position, params.positions - 1), &place);
  const int64_t step = params.source_stride[1];
  const auto* g_source =
      static_cast<const Element*>(params.source) + image * params.source_stride[0] + place + first_channel * step;
  const int32_t channels = position < params.positions ? params.k_channels - first_channel : 0;
  const uint32_t s_mine = s_source + (side * Shape::kPositions + of_tile) * 16;
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; chunk += kBatch) {
    SourceWords<Shape> words[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int32_t before = (chunk + i) * kStageChannels;
      words[i].load(g_source + before * step, step, channels - before);
    }
    if (chunk == 0) meet_all_roles<Shape::kConsumers>();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (chunk + i < params.num_chunks) {
        words[i].store(s_mine + (chunk + i) * Shape::kStagePlanes * Shape::kPositions * 16);
      }
    }
    ptx::fence_proxy_async();  // wgmma may read what this thread has stored
    __syncwarp();
    const int32_t lane = thread % 32;
    if (lane < kBatch && chunk + lane < params.num_chunks) ptx::mbarrier_arrive(s_barriers + 8 * (chunk + lane));
  }
}

// Accumulators of a thread: accumulator 4 * j + 2 * h + i of product t is column 2 * t + h of the thread's quad,
// position 8 * j + 2 * (lane % 4) + i.
struct DirectAccumulators {
  float r[2][kDirectPositions / 2];
};

// Which of a warp's eight quads belongs to lane / 4. In float32 adjacent quads are separated, so that eight lanes
// access all banks.
template <typename Element>
__device__ __forceinline__ int32_t quad_of(int32_t of_warp) {
  return sizeof(Element) == 4 ? of_warp % 2 * 4 + of_warp / 2 : of_warp;
}

// Addresses of the quads that this thread reads in a stage, of one or two adjacent channels of every eight or sixteen.
template <typename Element>
struct Quads {
  uint32_t s_first[2];  // in the first stage

  __device__ __forceinline__ explicit Quads(uint32_t s_weights) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const uint32_t quad = static_cast<uint32_t>(quad_of<Element>(static_cast<int32_t>(lane / 4)));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(Element) == 4) {
        const uint32_t row = lane % 4 + 4 * i;  // boxes have 32 columns, one box per warp
        s_first[i] = s_weights + warp * 4096 + row * 128 + ptx::tensor_swizzle(128, row, quad) * 16;
      } else {
        const uint32_t row = lane % 4 * 2 + i;  // boxes have 64 columns, half a box per warp
        s_first[i] = s_weights + warp / 2 * 8192 + row * 128 +
                     ptx::tensor_swizzle(128, row, warp % 2 * 4 + quad / 2) * 16 + quad % 2 * 8;
      }
    }
  }
};

// Bytes between steps of K: eight or sixteen channels of a box.
template <typename Element>
inline constexpr uint32_t kDirectStepBytes = 128 * 32 / sizeof(Element);

// Operand A of both products of a step of K.
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
      // Transposes two columns of each of two channels to two channels of each of two columns.
      ptx::write_fragment_halves(fragments[t][2 * half + h], words[4 * half + t], words[4 * half + 2 + t], h == 1);
    }
  }
}

// Number of fragment sets. With two, one stage's fragments are converted while products read the other's. In half
// precision ptxas would then serialize the products (C7513).
template <typename Element>
inline constexpr int kDirectSets = sizeof(Element) == 4 ? 2 : 1;

// Loads a tile's weights and issues all its products. `s_positions`: the warpgroup's positions in the first plane.
// Results are accumulated in the order of stages and steps of K.
template <typename Element, int kConsumers>
__device__ __forceinline__ void multiply_direct(DirectAccumulators& acc, const DirectParams& params,
                                                uint32_t s_positions, uint32_t s_source_barriers,
                                                const Quads<Element>& quads, Ring* weights) {
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
      ptx::mbarrier_wait(s_source_barriers + 8 * chunk, 0);  // the source is loaded once for all tiles
      const uint32_t offset = weights->slot() * kDirectStageBytes;
      if constexpr (kSets == 2) {
        ptx::wgmma_wait<1>();  // the previous products that read this set are complete
        element::fence_registers(fragments[set]);
#pragma unroll
        for (int step = 0; step < kDirectSteps; ++step) {
          DirectWords words;  // loads before the wait would make ptxas serialize the products (C7513)
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
        element::fence_registers(fragments[set]);
#pragma unroll
        for (int step = 0; step < kDirectSteps; ++step) to_operand<Element>(fragments[set][step], words[step]);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kDirectSteps; ++step) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          ptx::wgmma<Element>(acc.r[t], fragments[set][step][t], b.moved(2 * step * kPlane), chunk > 0 || step > 0);
        }
      }
      ptx::wgmma_commit();
      pipeline::release(weights->empty());  // the weights are in registers
      weights->advance();
      b = b.moved(2 * kDirectSteps * kPlane);
    }
  }
  ptx::wgmma_wait<0>();
  element::fence_registers(fragments);
}

// One thread loads the weights of stages [begin, end) of all the CTA's tiles.
template <typename Element>
__device__ __forceinline__ void load_direct_weights(const DirectParams& params, int32_t first_tile, int32_t begin,
                                                    int32_t end, uint32_t s_weights, Ring* ring) {
  constexpr int32_t kRow = 128 / static_cast<int32_t>(sizeof(Element));
  int32_t tile = begin / params.num_chunks, chunk = begin % params.num_chunks;
  for (int32_t stage = begin; stage < end; ++stage) {
    ring->wait_empty();  // the consumers have released the slot
    ptx::mbarrier_expect(ring->full(), kDirectStageBytes);
    const int32_t at[4] = {0, chunk * kRow, (first_tile + tile) * (kDirectColumns / kRow), 0};
    ptx::tensor_copy(s_weights + ring->slot() * kDirectStageBytes, &params.weights, at, ring->full());
    ring->advance();
    if (++chunk == params.num_chunks) chunk = 0, ++tile;
  }
}

#endif

}  // namespace convt::patch_sm90a
