// The patch_direct kernel, for unpacked weights. One producer warpgroup transposes the source of a CTA's positions, and
// one of its threads loads weights. One or two consumer warpgroups multiply and store. Each result is accumulated by
// one warpgroup, in an order that does not depend on timing.
#pragma once

#include "epilogue/finish.cuh"
#include "epilogue/steps.cuh"
#include "epilogue/store_neighbours.cuh"
#include "patch_sm90a/direct_mainloop.cuh"

namespace convt::patch_sm90a {

#ifdef CONVT_HAS_WGMMA

// Stores through shared memory. A warp writes its quads, some positions of each per pass, so that whole rows of a
// tile's positions are stored at once.
template <typename ElementValue, bool kPairsValue>
struct StagedShape {
  using Element = ElementValue;
  static constexpr bool kPairs = kPairsValue;  // a quad is two columns of two rows; otherwise four columns of one row
  static constexpr int kElement = sizeof(Element);
  static constexpr int kQuadBytes = kDirectStagedBytes;
  static constexpr int kPositions = kQuadBytes / 4 / kElement;  // per pass
  static constexpr int kStep = kQuadBytes + direct_staged_gap(kPairs, kElement);  // bytes between quads
  static constexpr int kColumns = kPairs ? 2 : 4;
  static constexpr int kRowBytes = kPositions * kColumns * kElement;
};

// Writes kCount results of a thread as one vector.
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

// Writes a pass's positions of the thread's quad.
template <typename Shape>
__device__ __forceinline__ void stage_quad(const DirectAccumulators& acc, float bias, int pass, uint32_t s_staged) {
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
        for (int i = 0; i < 4; ++i) values[i] = epilogue::finish(acc.r[t][4 * j + i % 2 * 2 + i / 2], bias);
        stage_vector<typename Shape::Element>(s_block + t * Shape::kRowBytes, values);
      }
    } else {
      float values[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = epilogue::finish(acc.r[i / 2 % 2][4 * j + i % 2 * 2 + i / 4], bias);
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

// Element offset of a position's patch in the result's first channel; -1 if the position does not exist.
__device__ __forceinline__ int64_t direct_offset(const DirectParams& params, int32_t position) {
  if (position >= params.positions) return -1;
  int32_t place, column;
  const int32_t image = params.by_image(position, &place);
  int32_t row;
  const int32_t plane = params.by_rows(params.by_row(place, &column), &row);
  return image * params.result_stride[0] + plane * params.kernel_d * params.plane_stride +
         row * params.kernel_h * params.result_stride[2] + column * params.kernel_w;
}

// Element offset of the thread's quad in a position's results; -1 if the quad does not exist.
template <typename Shape>
__device__ __forceinline__ int64_t quad_offset(const DirectParams& params, int32_t quad) {
  if (4 * quad >= params.columns) return -1;
  int32_t of_channel, of_row;
  const int32_t channel = params.channel_quads(quad, &of_channel);
  int32_t row;
  const int32_t plane = params.by_tap_rows(params.row_quads(of_channel, &of_row) * (Shape::kPairs ? 2 : 1), &row);
  return channel * params.result_stride[1] + plane * params.plane_stride + row * params.result_stride[2] + 4 * of_row;
}

// Stores the warp's staged results in vectors of kVector bytes, contiguous across lanes. `own_offset` and `own_channel`
// belong to the thread's quad.
template <typename Shape, int kVector, bool kSteps>
__device__ __forceinline__ void store_staged_quads(const DirectParams& params, int32_t first_position,
                                                   int64_t own_offset, int32_t own_channel, uint32_t s_staged) {
  using Element = typename Shape::Element;
  constexpr int kVectors = Shape::kQuadBytes / kVector;  // per quad
  constexpr int kOfRow = Shape::kRowBytes / kVector;
  constexpr int kRounds = kVectors <= 32 ? 1 : kVectors / 32;  // per quad
  constexpr int kTogether = kVectors <= 32 ? 32 / kVectors : 1;  // quads per round
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t lane_quad = lane / kVectors;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int32_t vector = lane % kVectors + 32 * round;
    const int32_t element = vector % kOfRow * (kVector / Shape::kElement);
    int64_t offset = direct_offset(params, first_position + element / Shape::kColumns);
    if (offset >= 0) offset += vector / kOfRow * params.quad_row + element % Shape::kColumns;
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
      if constexpr (kSteps) {
        constexpr int kCount = kVector / Shape::kElement;
        const int32_t channel = __shfl_sync(0xffffffffu, own_channel, 4 * staged_quad);
        Element elements[kCount];
        memcpy(elements, words, sizeof(words));
        const epilogue::Places<1> places{{channel}, {offset < 0 || of_quad < 0 ? 0 : kCount}, {offset + of_quad}};
        epilogue::run_elements<Element, 1, kCount>(params.steps, places, true, elements);
        memcpy(words, elements, sizeof(words));
      }
      if (offset < 0 || of_quad < 0) continue;
      epilogue::store_vector(reinterpret_cast<uint32_t*>(g_first + of_quad), words);
    }
  }
}

// Stores all quads of the warp for the warpgroup's positions. `quad` is the thread's quad.
template <typename Shape, bool kSteps>
__device__ __forceinline__ void store_direct(const DirectAccumulators& acc, const DirectParams& params,
                                             int32_t first_position, int32_t quad, int32_t channel, float bias,
                                             uint32_t s_staged) {
  constexpr int kElement = Shape::kElement;
  const int64_t offset = quad_offset<Shape>(params, quad);
#pragma unroll
  for (int pass = 0; pass < kDirectPositions / Shape::kPositions; ++pass) {
    __syncwarp();  // the previous pass is stored
    stage_quad<Shape>(acc, bias, pass, s_staged);
    __syncwarp();
    const int32_t position = first_position + pass * Shape::kPositions;
    if (params.vector * kElement == 16) {
      store_staged_quads<Shape, 16, kSteps>(params, position, offset, channel, s_staged);
    } else if (params.vector * kElement == 8) {
      store_staged_quads<Shape, 8, kSteps>(params, position, offset, channel, s_staged);
    } else if constexpr (kElement * Shape::kColumns == 4) {
      store_staged_quads<Shape, 4, kSteps>(params, position, offset, channel, s_staged);
    }
  }
}

#endif

// Registers per thread: 176 + 80 = 2 * 128, 2 * 192 + 120 = 3 * 168.
inline constexpr int direct_loader_registers(int consumers) { return consumers == 1 ? 80 : 120; }
inline constexpr int direct_consumer_registers(int consumers) { return consumers == 1 ? 176 : 192; }

// Does not use hopper::convolve(): both roles issue loads before the barriers are initialized.
template <typename Element, int kConsumers>
__global__ void __launch_bounds__(direct_threads(kConsumers), 3 - kConsumers)
    convolve_direct(const __grid_constant__ DirectParams params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  const uint32_t s_source_barriers = s_barriers + 16 * params.slots;
  int32_t position_tile;
  const int32_t first_tile =
      params.position_tiles(static_cast<int32_t>(blockIdx.x), &position_tile) * params.block_tiles;
  const int32_t tiles = min(params.block_tiles, params.column_tiles - first_tile);
  const int32_t begin = position_tile * (kDirectPositions * kConsumers);
  const int32_t num_stages = tiles * params.num_chunks, at_once = min(num_stages, params.slots);
  Ring ring(s_barriers, params.slots);

  if (threadIdx.x < kConsumers * 128) {
    if (threadIdx.x == 0) {
      pipeline::init_slots(s_barriers, 0, params.slots, 1, kConsumers * 4);
      for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) ptx::mbarrier_init(s_source_barriers + 8 * chunk, 4);
      ptx::fence_mbarrier_init();
      Ring first = ring;
      load_direct_weights<Element>(params, first_tile, 0, at_once, s_weights, &first);
    }
    meet_all_roles<kConsumers>();
    ptx::setmaxnreg_inc<direct_consumer_registers(kConsumers)>();
    // The shuffle tells the compiler that the value is warp-uniform.
    const int32_t consumer = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 128, 0);
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t s_staged = s_source + params.staged_begin + warp * kDirectStagedWarp;
    const Quads<Element> quads(s_weights);
    const int32_t position = begin + consumer * kDirectPositions;
    const uint32_t s_positions = s_source + consumer * kDirectPositions * 16;
    for (int32_t tile = 0; tile < tiles; ++tile) {
      const int32_t quad = (first_tile + tile) * (kDirectColumns / 4) + static_cast<int32_t>(warp) % 4 * 8 +
                           quad_of<Element>(static_cast<int32_t>(threadIdx.x) % 32 / 4);
      int32_t of_channel;
      const int32_t channel = params.channel_quads(quad, &of_channel);
      const float bias = epilogue::bias_of<Element>(params, 0, params.n_channels, channel);
      DirectAccumulators acc;
      multiply_direct<Element, kConsumers>(acc, params, s_positions, s_source_barriers, quads, &ring);
      const auto store = [&](auto shape) {
        if (params.steps.num_steps == 0) {
          store_direct<decltype(shape), false>(acc, params, position, quad, channel, bias, s_staged);
        } else {
          store_direct<decltype(shape), true>(acc, params, position, quad, channel, bias, s_staged);
        }
      };
      if (params.kernel_w == 2) {
        store(StagedShape<Element, true>{});
      } else {
        store(StagedShape<Element, false>{});
      }
    }
  } else {
    ptx::setmaxnreg_dec<direct_loader_registers(kConsumers)>();
    if (params.source_pairs) {
      load_direct_source<SourceShape<Element, kConsumers, 2>>(params, begin, s_source, s_source_barriers);
    } else {
      load_direct_source<SourceShape<Element, kConsumers, 1>>(params, begin, s_source, s_source_barriers);
    }
    if (threadIdx.x == kConsumers * 128) {
      for (int32_t stage = 0; stage < at_once; ++stage) ring.advance();
      load_direct_weights<Element>(params, first_tile, at_once, num_stages, s_weights, &ring);
    }
  }
#endif
}

}  // namespace convt::patch_sm90a
