// The patch engine's kernel for 2 x 2 kernels whose weights stay in shared memory: two warpgroups multiply and store in
// turn, so that the tensor cores have one's products while the other's results leave.
#pragma once

#include "patch_sm90a/turns_loader.cuh"
#include "patch_sm90a/turns_store.cuh"

namespace convt::patch_sm90a {

// Per thread, 2 * 216 + 72 = 3 * 168, the launch's.
inline constexpr int kTurnsConsumerRegisters = 216;
inline constexpr int kTurnsLoaderRegisters = 72;

#ifdef CONVT_HAS_WGMMA

// One thread: all weights of the CTA's columns, once. Packed blocks of 64 channels of a tap become planes of all
// columns, those of a tap behind those of the one before.
template <typename Shape>
__device__ __forceinline__ void load_column_weights(const Params& params, uint32_t s_weights, uint32_t s_barriers) {
  constexpr int kPlanes = 2 * Shape::kSteps, kRun = Shape::kChannels * 16;
  constexpr int kPackedPlane = kPatchChannels * 16, kPackedBlock = kPlanes * kPackedPlane;
  const Tile tile = tile_of<Shape>(params, first_tile(params));
  const int32_t first = tile.channel_tile * Shape::kChannels;
  const char* g_chunk =
      static_cast<const char*>(params.packed) +
      (int64_t{tile.group} * params.channel_blocks + first / kPatchChannels) * params.packed_tile_step +
      first % kPatchChannels * 16;
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk, g_chunk += 2 * kPackedBlock) {
    const uint32_t barrier = s_barriers + 16 * chunk;
    ptx::mbarrier_expect(barrier, Shape::kChunkBytes);
#pragma unroll
    for (int tap = 0; tap < kPatchTaps; ++tap) {
      const char* g_tap = g_chunk + tap / 2 * params.packed_row_step + tap % 2 * kPackedBlock;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        ptx::bulk_copy(s_weights + chunk * Shape::kChunkBytes + plane * Shape::kPlaneBytes + tap * kRun,
                       g_tap + plane * kPackedPlane, kRun, barrier);
      }
    }
  }
}

// All products of a tile. Those of a step of K are in flight while the next one's fragments are made.
template <typename Shape>
__device__ __forceinline__ void multiply_in_turn(typename Shape::Accumulators& sums, const Params& params, bool first_tile,
                                                 uint32_t s_mine, uint32_t s_weights, uint32_t s_weight_barriers,
                                                 uint32_t s_next, Ring* sources) {
  constexpr int kRows = Shape::kRowBlocks, kSteps = Shape::kSteps;
  uint32_t fragments[kSteps][kRows][4], words[kSteps][kRows][4];
#pragma unroll
  for (auto& block : sums.r) {
#pragma unroll
    for (float& sum : block) sum = 0;
  }
  const auto load = [&] {
    sources->wait_full();
    const uint32_t s_stage = s_mine + sources->slot() * Shape::kStageBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        load_pairs<Shape>(words[step][row], s_stage + row * kPatchPositions * Shape::kElement, step);
      }
    }
    pipeline::release(sources->empty());
    sources->advance();
  };
  load();
  ptx::MatrixDescriptor b = ptx::MatrixDescriptor::of(s_weights, Shape::kPlaneBytes, 128);
#pragma unroll 1
  for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
    if (first_tile) ptx::mbarrier_wait(s_weight_barriers + 16 * chunk, 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::wgmma_wait<1>();  // the products of these fragments
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int i = 0; i < 4; ++i) ptx::keep_fragment(fragments[step][row][i]);
        write_pairs<Shape>(fragments[step][row], words[step][row]);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int block = 0; block < Shape::kColumnBlocks; ++block) {
          ptx::wgmma<typename Shape::Element>(sums.r[row * Shape::kColumnBlocks + block], fragments[step][row],
                                              b.moved(step * 2 * (Shape::kPlaneBytes / 16) + block * 128), true);
        }
      }
      ptx::wgmma_commit();
    }
    b = b.moved(Shape::kChunkBytes / 16);
    if (chunk + 1 < params.num_chunks) load();  // while these products run
  }
  if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(s_next);  // the other warpgroup may multiply
  ptx::wgmma_wait<0>();
#pragma unroll
  for (auto& step : fragments) {
#pragma unroll
    for (auto& row : step) {
#pragma unroll
      for (uint32_t& fragment : row) ptx::keep_fragment(fragment);
    }
  }
}

#endif

template <typename Shape>
__global__ void __launch_bounds__(patch_threads(2), 1) convolve_in_turn(const __grid_constant__ Params params) {
#ifdef CONVT_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_source = ptx::shared_address(s_bytes);
  const uint32_t s_weights = s_source + params.weights_begin;
  const uint32_t s_staged = s_source + params.staged_begin;
  const uint32_t s_barriers = s_source + params.barriers_begin;
  const uint32_t s_weight_barriers = s_barriers + 16 * params.source_slots;
  const uint32_t s_turns = s_weight_barriers + 16 * params.weight_slots;
  const uint32_t s_bias = s_turns + 32;
  if (threadIdx.x == 0) {
    for (int32_t slot = 0; slot < params.source_slots; ++slot) {
      ptx::mbarrier_init(s_barriers + 16 * slot, 32);  // and one warp brings it
      ptx::mbarrier_init(s_barriers + 16 * slot + 8, 4);  // one warpgroup reads a stage
    }
    for (int32_t slot = 0; slot < params.weight_slots; ++slot) ptx::mbarrier_init(s_weight_barriers + 16 * slot, 1);
    for (int which = 0; which < 4; ++which) ptx::mbarrier_init(s_turns + 8 * which, which < 2 ? 1 : 4);
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x < Shape::kChannels) {
    const Tile tile = tile_of<Shape>(params, first_tile(params));
    const float bias = epilogue::bias_of<typename Shape::Element>(
        params.bias, tile.group, params.n_channels,
        tile.channel_tile * Shape::kChannels + static_cast<int32_t>(threadIdx.x));
    ptx::store_shared(s_bias + threadIdx.x * 4, __float_as_uint(bias));
  }
  __syncthreads();  // the barriers exist, and the bias

  if (threadIdx.x < 256) {
    ptx::take_registers<kTurnsConsumerRegisters>();
    // A value that the compiler knows to be the same for the whole warp.
    const int32_t consumer = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 128, 0);
    Ring sources(s_barriers, params.source_slots);
    if (consumer == 1) sources.advance(params.num_chunks);
    const RowStore<Shape> store(params, s_staged, s_bias, s_turns + 16, consumer);
    const uint32_t s_mine = s_source + Shape::words_begin();
    const auto step = static_cast<int32_t>(gridDim.x);
    uint32_t parity = consumer == 0;  // of its turns to multiply and to store: the first warpgroup's have come
    for (int32_t number = first_tile(params) + consumer * step; number < params.num_tiles; number += 2 * step) {
      const Tile tile = tile_of<Shape>(params, number);
      typename Shape::Accumulators sums;
      // Vectors of the source may begin before the tile.
      const int32_t lead = tile.begin & params.vector_mask;
      // The other warpgroup has had all stages before these: a slot's barrier tells no more than odd from even.
      ptx::mbarrier_wait(s_turns + 8 * consumer, parity);
      multiply_in_turn<Shape>(sums, params, number < 2 * step, s_mine + lead * Shape::kElement, s_weights,
                              s_weight_barriers, s_turns + 8 * (consumer ^ 1), &sources);
      sources.advance(params.num_chunks);  // the other warpgroup's
      store.store_tile(sums, params, tile, parity);
      parity ^= 1;
    }
  } else {
    ptx::give_registers<kTurnsLoaderRegisters>();
    ptx::wait_for_previous_kernel();  // which packs; consumers touch nothing before their first stage is here
    // A value that the compiler knows to be the same for the whole warp.
    const int32_t warp = __shfl_sync(0xffffffffu, (static_cast<int32_t>(threadIdx.x) - 256) / 32, 0);
    if (warp == kTurnsLoaderWarps - 1) {
      if (ptx::elect_one()) load_column_weights<Shape>(params, s_weights, s_weight_barriers);
      __syncwarp();
    }
    if (params.source_vector == 16) {
      load_stages<Shape, 16>(params, s_source, s_barriers, warp);
    } else if (params.source_vector == 8) {
      load_stages<Shape, 8>(params, s_source, s_barriers, warp);
    } else if (params.source_vector == 4) {
      load_stages<Shape, 4>(params, s_source, s_barriers, warp);
    } else if constexpr (Shape::kElement == 2) {
      load_stages<Shape, 2>(params, s_source, s_barriers, warp);
    }
  }
#endif
}

}  // namespace convt::patch_sm90a
