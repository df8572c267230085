// The source of a CTA's positions, [channel][position] in memory -> the second operand of all its products, planes of
// [position][16 bytes of channels]. Float32 is rounded to TF32 on the way.
#pragma once

#include "patch_sm90a/direct_params.h"
#include "ptx/global.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// All threads of the CTA meet here, each role from its own place of the code; afterwards the mbarriers exist.
template <int kConsumers>
__device__ __forceinline__ void meet_all_roles() {
  ptx::named_barrier_of_roles(1, direct_threads(kConsumers));
}

// How a warpgroup's 128 threads share a stage: each has one or two neighbouring positions of a few planes.
template <typename ElementValue, int kConsumersValue, int kTogetherValue>
struct SourceShape {
  using Element = ElementValue;
  static constexpr int kConsumers = kConsumersValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kTogether = kTogetherValue;
  static constexpr int kPositions = kDirectPositions * kConsumers;
  static constexpr int kChannels = 16 / kElement;  // of a plane
  static constexpr int kStagePlanes = 2 * kDirectSteps;
  static constexpr int kPlaneThreads = kPositions / kTogether;
  static constexpr int kSide = 128 / kPlaneThreads;  // planes side by side
  static constexpr int kPlanes = kStagePlanes / kSide;
  static constexpr int kWords = kElement * kTogether == 8 ? 2 : 1;  // of a channel
  // Stages that are on their way from memory together, as registers allow.
  static constexpr int kRegisters = kPlanes * kChannels * kWords;
  static constexpr int kBatch = kRegisters > 32 ? 1 : (kConsumers == 2 ? 64 : 48) / kRegisters;
};

template <typename Shape>
struct SourceWords {
  uint32_t r[Shape::kPlanes][Shape::kChannels][Shape::kWords];

  // From a stage's first channel of this thread on, or zeros.
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

  // 16 bytes of one position.
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
        // Every other four lanes begin with the second position, so that eight lanes meet all banks.
        const bool turned = threadIdx.x % 8 >= 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t word = first[i];
          first[i] = turned ? second[i] : word;
          second[i] = turned ? word : second[i];
        }
        ptx::store_shared(s_plane + (turned ? 16 : 0), first);
        ptx::store_shared(s_plane + (turned ? 0 : 16), second);
      }
    }
  }
};

// A warpgroup. Its first loads are on their way before the CTA's barriers exist.
template <typename Shape>
__device__ __forceinline__ void load_source(const DirectParams& params, int32_t begin, uint32_t s_source,
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
    ptx::fence_proxy_async();  // what this thread has stored is there for products
    __syncwarp();
    const int32_t lane = thread % 32;
    if (lane < kBatch && chunk + lane < params.num_chunks) ptx::mbarrier_arrive(s_barriers + 8 * (chunk + lane));
  }
}

#endif

}  // namespace convt::patch_sm90a
