// The patch engine's kernel for weights as they are: one warpgroup transposes the source of a CTA's positions, and one
// thread of it brings weights; one or two others multiply and store. Every result is one sum in one warpgroup's
// accumulator, in an order that does not depend on timing.
#pragma once

#include "patch_sm90a/direct_source.cuh"
#include "patch_sm90a/direct_store.cuh"

namespace convt::patch_sm90a {

// Per thread. With the loading warpgroup's these are the launch's: 176 + 80 = 2 * 128, 2 * 192 + 120 = 3 * 168.
inline constexpr int direct_loader_registers(int consumers) { return consumers == 1 ? 80 : 120; }
inline constexpr int direct_consumer_registers(int consumers) { return consumers == 1 ? 176 : 192; }

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
      for (int32_t slot = 0; slot < params.slots; ++slot) {
        ptx::mbarrier_init(s_barriers + 16 * slot, 1);
        ptx::mbarrier_init(s_barriers + 16 * slot + 8, kConsumers * 4);
      }
      for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) ptx::mbarrier_init(s_source_barriers + 8 * chunk, 4);
      ptx::fence_mbarrier_init();
      Ring first = ring;
      load_direct_weights<Element>(params, first_tile, 0, at_once, s_weights, &first);
    }
    meet_all_roles<kConsumers>();
    ptx::take_registers<direct_consumer_registers(kConsumers)>();
    // A value that the compiler knows to be the same for the whole warp.
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
      const float bias = epilogue::bias_of<Element>(params.bias, 0, params.n_channels, channel);
      DirectSums sums;
      multiply_direct<Element, kConsumers>(sums, params, s_positions, s_source_barriers, quads, &ring);
      if (params.kernel_w == 2) {
        store_direct<StagedShape<Element, true>>(sums, params, position, quad, bias, s_staged);
      } else {
        store_direct<StagedShape<Element, false>>(sums, params, position, quad, bias, s_staged);
      }
    }
  } else {
    ptx::give_registers<direct_loader_registers(kConsumers)>();
    if (params.source_pairs) {
      load_source<SourceShape<Element, kConsumers, 2>>(params, begin, s_source, s_source_barriers);
    } else {
      load_source<SourceShape<Element, kConsumers, 1>>(params, begin, s_source, s_source_barriers);
    }
    if (threadIdx.x == kConsumers * 128) {
      for (int32_t stage = 0; stage < at_once; ++stage) ring.advance();
      load_direct_weights<Element>(params, first_tile, at_once, num_stages, s_weights, &ring);
    }
  }
#endif
}

}  // namespace convt::patch_sm90a
