// Accumulators -> bias -> result of the kernel for weights as they are: by way of shared memory, so that whole rows of a tile's
// positions leave together. Every warp has quads of its own and stages them alone.
#pragma once

#include "epilogue/bias.cuh"
#include "epilogue/store_neighbours.cuh"
#include "patch_sm90a/direct_mainloop.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

template <typename ElementValue, bool kPairsValue>
struct StagedShape {
  using Element = ElementValue;
  static constexpr bool kPairs = kPairsValue;  // a quad is two columns of each of two rows, else four of one row
  static constexpr int kElement = sizeof(Element);
  static constexpr int kQuadBytes = kDirectStagedBytes;
  static constexpr int kPositions = kQuadBytes / 4 / kElement;  // of a pass
  static constexpr int kStep = kQuadBytes + direct_staged_gap(kPairs, kElement);  // from one quad to the next
  static constexpr int kColumns = kPairs ? 2 : 4;
  static constexpr int kRowBytes = kPositions * kColumns * kElement;
};

// kCount results of a thread, in a vector.
template <typename Element, int kCount>
__device__ __forceinline__ void stage_vector(uint32_t shared, const float (&values)[kCount]) {
  constexpr int kWords = kCount * static_cast<int>(sizeof(Element)) / 4;
  Element elements[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) elements[i] = element::to_element<Element>(values[i]);
  uint32_t words[kWords];
  memcpy(words, elements, sizeof(elements));
  ptx::store_shared(shared, words);
}

// A pass's positions of the thread's quad.
template <typename Shape>
__device__ __forceinline__ void stage_quad(const DirectSums& sums, float bias, int pass, uint32_t s_staged) {
  constexpr int kElement = Shape::kElement;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t s_quad = s_staged + lane / 4 * Shape::kStep + lane % 4 * 2 * Shape::kColumns * kElement;
#pragma unroll
  for (int k = 0; k < Shape::kPositions / 8; ++k) {
    const int j = pass * (Shape::kPositions / 8) + k;
    const uint32_t s_block = s_quad + k * 8 * Shape::kColumns * kElement;
    if constexpr (Shape::kPairs) {
#pragma unroll
      for (int t = 0; t < 2; ++t) {  // rows of the patch
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = sums.r[t][4 * j + i % 2 * 2 + i / 2] + bias;
        stage_vector<typename Shape::Element>(s_block + t * Shape::kRowBytes, values);
      }
    } else {
      float values[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = sums.r[i / 2 % 2][4 * j + i % 2 * 2 + i / 4] + bias;
      if constexpr (kElement == 2) {
        stage_vector<typename Shape::Element>(s_block, values);
      } else {
#pragma unroll
        for (int position = 0; position < 2; ++position) {
          const float (&four)[4] = *reinterpret_cast<const float (*)[4]>(values + 4 * position);
          stage_vector<float>(s_block + position * 16, four);
        }
      }
    }
  }
}

// Where a position's patch begins in the result's first channel, or -1 where there is none.
__device__ __forceinline__ int64_t direct_offset(const DirectParams& params, int32_t position) {
  if (position >= params.positions) return -1;
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  const int32_t row = params.by_row(place, &column);
  return image * params.result_stride[0] + row * params.kernel_h * params.result_stride[2] + column * params.kernel_w;
}

// Where the thread's quad begins in a position's results, or -1 where there is none.
template <typename Shape>
__device__ __forceinline__ int64_t quad_offset(const DirectParams& params, int32_t quad) {
  if (4 * quad >= params.columns) return -1;
  int32_t of_channel, of_row;
  const int32_t channel = params.channel_quads(quad, &of_channel);
  const int32_t row = params.row_quads(of_channel, &of_row) * (Shape::kPairs ? 2 : 1);
  return channel * params.result_stride[1] + row * params.result_stride[2] + 4 * of_row;
}

// What the warp has staged, in vectors of kVector bytes; lanes have neighbours. `own_offset` is of the thread's quad.
template <typename Shape, int kVector>
__device__ __forceinline__ void leave_staged(const DirectParams& params, int32_t first_position, int64_t own_offset,
                                             uint32_t s_staged) {
  using Element = typename Shape::Element;
  constexpr int kVectors = Shape::kQuadBytes / kVector;  // of a quad
  constexpr int kOfRow = Shape::kRowBytes / kVector;
  constexpr int kRounds = kVectors <= 32 ? 1 : kVectors / 32;  // of a quad
  constexpr int kTogether = kVectors <= 32 ? 32 / kVectors : 1;  // quads
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t lane_quad = lane / kVectors;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int32_t vector = lane % kVectors + 32 * round;
    const int32_t element = vector % kOfRow * (kVector / Shape::kElement);
    int64_t offset = direct_offset(params, first_position + element / Shape::kColumns);
    if (offset >= 0) offset += vector / kOfRow * params.result_stride[2] + element % Shape::kColumns;
    auto* g_first = static_cast<Element*>(params.result) + offset;
#pragma unroll
    for (int begin = 0; begin < 8; begin += kTogether) {
      const int32_t staged_quad = begin + lane_quad;
      const int64_t of_quad = __shfl_sync(0xffffffffu, own_offset, 4 * staged_quad);
      uint32_t words[kVector / 4];
      const uint32_t s_vector = s_staged + staged_quad * Shape::kStep + vector * kVector;
      if constexpr (kVector == 4) {
        words[0] = ptx::load_shared(s_vector);
      } else {
        ptx::load_shared(words, s_vector);
      }
      if (offset < 0 || of_quad < 0) continue;
      epilogue::store_vector(reinterpret_cast<uint32_t*>(g_first + of_quad), words);
    }
  }
}

// All of the warp's quads, of the warpgroup's positions; `quad` is the thread's.
template <typename Shape>
__device__ __forceinline__ void store_direct(const DirectSums& sums, const DirectParams& params, int32_t first_position,
                                             int32_t quad, float bias, uint32_t s_staged) {
  constexpr int kElement = Shape::kElement;
  const int64_t offset = quad_offset<Shape>(params, quad);
#pragma unroll
  for (int pass = 0; pass < kDirectPositions / Shape::kPositions; ++pass) {
    __syncwarp();  // the pass before has left
    stage_quad<Shape>(sums, bias, pass, s_staged);
    __syncwarp();
    const int32_t position = first_position + pass * Shape::kPositions;
    if (params.vector * kElement == 16) {
      leave_staged<Shape, 16>(params, position, offset, s_staged);
    } else if (params.vector * kElement == 8) {
      leave_staged<Shape, 8>(params, position, offset, s_staged);
    } else if constexpr (kElement * Shape::kColumns == 4) {
      leave_staged<Shape, 4>(params, position, offset, s_staged);
    }
  }
}

#endif

}  // namespace convt::patch_sm90a
