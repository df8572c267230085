// Gradient of the input of layers with few channels, with mma.sync:
//     gx[n, ci, ih, iw] = sum gy[n, co, ih * stride - padding + kh * dilation, ...] * w[ci, co, kh, kw]
// A CTA iterates over tiles of positions. One to four producer warps copy stages of grad_output: whole rows of a few
// channels. Consumer warps multiply directly from these stages, with positions as operand B, and store from registers.
// The weights stay in shared memory. Called by launch/. Must not know: torch, how the plan was chosen.
#pragma once

#include "element/vector.cuh"
#include "mma_sm90a/grad_input_loader.cuh"
#include "mma_sm90a/grad_input_mainloop.cuh"
#include "pipeline/ring.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Sets the offsets of the lane's positions in a stage, and their taps outside the image. Returns whether any position
// of the warp has such a tap.
template <typename Traits>
__device__ __forceinline__ bool place_unit(const GradInputParams& params, const GradInputTile& tile,
                                           const int2* s_positions, const uint32_t* s_outside,
                                           GradInputOperands<Traits>* operands) {
  const bool whole_steps = params.depth % Traits::kStepElements == 0;
  uint32_t any = 0;
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
    const int2 position = s_positions[n * kMmaPositions + static_cast<int32_t>(threadIdx.x) % 32 / 4];
    const int32_t h = tile.h + (position.y >> 16), w = tile.w + (position.y & 0xffff);
    uint32_t outside = 0;
    if (h < params.h.in && w < params.w.in) outside = s_outside[h] | s_outside[params.h.in + w];
    any |= outside;
    operands->s_position[n] = position.x;
    operands->outside[n] = whole_steps ? outside : outside | kNoTap;
  }
  return __any_sync(0xffffffffu, any != 0) != 0;
}

// Stores a unit's accumulators to shared memory, or with `kAdd` adds those in shared memory to them.
template <typename Traits, bool kAdd>
__device__ __forceinline__ void exchange_accumulators(Accumulators<Traits>& r_acc, uint32_t s_accumulators) {
#pragma unroll
  for (int m = 0; m < Traits::kColumnTiles; ++m) {
#pragma unroll
    for (int n = 0; n < Traits::kPositionTiles; ++n) {
      const uint32_t s_tile = s_accumulators + (m * Traits::kPositionTiles + n) * 512;
      uint32_t words[4];
      if constexpr (kAdd) {
        ptx::load_shared(words, s_tile);
#pragma unroll
        for (int i = 0; i < 4; ++i) r_acc[m][n][i] = element::add(r_acc[m][n][i], __uint_as_float(words[i]));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = __float_as_uint(r_acc[m][n][i]);
        ptx::store_shared(s_tile, words);
      }
    }
  }
}

// Rounds the results of a unit once and stores them in NCHW. A warp stores whole sectors of eight channels. kNeighbours
// is the number of contiguous results per lane and store. Four come from two position tiles, fewer from one.
template <typename Traits, int kNeighbours>
__device__ __forceinline__ void store_unit(const GradInputParams& params, const GradInputTile& tile, int32_t group,
                                           const Accumulators<Traits>& r_acc, const int2* s_positions, int32_t ci) {
  using Element = typename Traits::Element;
  constexpr int kTiles = (kNeighbours + 1) / 2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  ci += lane / 4;
  auto* g_channel = static_cast<Element*>(params.result) + tile.image * params.result_stride[0] +
                    (int64_t{group} * params.group_ci + ci) * params.result_stride[1];
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; n += kTiles) {
#pragma unroll
    for (int j = 0; j < (kNeighbours > 1 ? 1 : 2); ++j) {
      const int32_t place = s_positions[n * kMmaPositions + lane % 4 * 2 + j].y;
      const int32_t h = tile.h + (place >> 16), w = tile.w + (place & 0xffff);
      if (h >= params.h.in || w >= params.w.in) continue;
      Element* g_to = g_channel + h * params.result_stride[2] + w;
#pragma unroll
      for (int m = 0; m < Traits::kColumnTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half, g_to += 8 * params.result_stride[1]) {
          if (ci + m * kMmaColumns + half * 8 >= params.group_ci) break;
          float values[kNeighbours];
#pragma unroll
          for (int i = 0; i < kNeighbours; ++i) values[i] = r_acc[m][n + i / 2][2 * half + i % 2 + j];
          element::Vector<Element, kNeighbours> results;
          results.round(values);
          results.store(g_to);
        }
      }
    }
  }
}

// Stores the results of a unit in channels_last. A lane holds contiguous channels of a position.
template <typename Traits>
__device__ __forceinline__ void store_unit_channels_last(const GradInputParams& params, const GradInputTile& tile,
                                                         int32_t group, const Accumulators<Traits>& r_acc,
                                                         const int2* s_positions, int32_t ci) {
  using Element = typename Traits::Element;
  constexpr int kVector = channel_vector<Traits>();
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  ci += lane / 4 * kVector;
  auto* g_channel = static_cast<Element*>(params.result) + tile.image * params.result_stride[0] +
                    int64_t{group} * params.group_ci + ci;
#pragma unroll
  for (int n = 0; n < Traits::kPositionTiles; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int32_t place = s_positions[n * kMmaPositions + lane % 4 * 2 + j].y;
      const int32_t h = tile.h + (place >> 16), w = tile.w + (place & 0xffff);
      if (h >= params.h.in || w >= params.w.in) continue;
      Element* g_to = g_channel + h * params.result_stride[2] + w * params.result_stride[3];
#pragma unroll
      for (int first = 0; first < 2 * Traits::kColumnTiles; first += kVector) {
        float values[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = r_acc[(first + i) / 2][n][(first + i) % 2 * 2 + j];
        element::Vector<Element, kVector> results;
        results.round(values);
        if (params.wide) {
          if (ci + first * 8 < params.group_ci) results.store(g_to + first * 8);
        } else {
#pragma unroll
          for (int i = 0; i < kVector; ++i) {
            if (ci + first * 8 + i < params.group_ci) results.store(i, g_to + first * 8 + i);
          }
        }
      }
    }
  }
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(max_mma_gradient_threads(Traits::kColumnTiles, Traits::kPositionTiles,
                                                           Traits::kSplit),
                                  1) grad_input(const __grid_constant__ GradInputParams params) {
#ifdef CONVT_HAS_WGMMA
  using Element = typename Traits::Element;
  constexpr int kElements = Traits::kPlaneChannels;
  extern __shared__ __align__(128) unsigned char s_bytes[];
  const uint32_t s_begin = ptx::shared_address(s_bytes), s_barriers = s_begin + params.barrier_begin;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t block = static_cast<int32_t>(blockIdx.x) / params.groups;
  const int32_t group = static_cast<int32_t>(blockIdx.x) % params.groups;
  const int32_t first_tile = block * params.tiles_per_block + min(block, params.longer_blocks);
  const int32_t end_tile = first_tile + params.tiles_per_block + (block < params.longer_blocks ? 1 : 0);
  if (threadIdx.x == 0) {
    pipeline::init_slots(s_barriers, 0, params.stages, 32 * params.loaders, params.warps);
    ptx::mbarrier_init(s_barriers + 16 * params.stages, 1);
    ptx::fence_mbarrier_init();
  }
  // With raw_weights, bulk copies first load the unmodified weights into the last slot.
  const bool raw_weights = params.raw_weights;
  const uint32_t s_last = (params.stages - 1) * params.stage_bytes, raw_full = s_barriers + 16 * params.stages;
  __syncthreads();  // barriers are initialized
  pipeline::Ring ring(s_barriers, params.stages);
  if (warp >= params.warps) {
    bool last_is_free = !raw_weights;
#pragma unroll 1
    for (int32_t index = first_tile; index < end_tile; ++index) {
      const GradInputTile tile = grad_input_tile(params, index);
#pragma unroll 1
      for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
        ring.wait_empty();
        if (!last_is_free && ring.slot() == params.stages - 1) {
          ptx::named_barrier(3, params.threads);
          last_is_free = true;
        }
        const uint32_t s_stage = s_begin + ring.slot() * params.stage_bytes;
        const uint32_t bytes = load_stage<Element>(params, tile, group, chunk, s_stage, ring.full());
        ptx::mbarrier_expect(ring.full(), bytes);  // each lane arrives, because it may have stored elements itself
        ring.advance();
      }
    }
    if (!last_is_free) ptx::named_barrier(3, params.threads);
    return;
  }
  const auto* g_weight = static_cast<const Element*>(params.weight) + group * params.weight_group_stride;
  if (raw_weights && lane == 0) load_raw_weights(params, g_weight, s_begin + s_last, raw_full);
  __syncwarp();
  make_tables<Traits>(params, s_bytes);
  ptx::named_barrier(1, 32 * params.warps);  // the tables are complete
  if (raw_weights) ptx::mbarrier_wait(raw_full, 0);
  make_fragments<Traits>(params, raw_weights ? reinterpret_cast<const Element*>(s_bytes + s_last) : g_weight,
                         raw_weights ? params.raw_pitch : params.weight_stride[0],
                         reinterpret_cast<const int32_t*>(s_bytes + params.place_begin), s_bytes + params.weight_begin);
  if (raw_weights) ptx::named_arrive(3, params.threads);  // the last slot is free
  ptx::named_barrier(1, 32 * params.warps);  // the weights are complete

  const auto* s_positions = reinterpret_cast<const int2*>(s_bytes + params.position_begin);
  const auto* s_outside = reinterpret_cast<const uint32_t*>(s_bytes + params.outside_begin);
  GradInputOperands<Traits> operands;
  operands.s_offsets = s_begin + params.offset_begin + lane % 4 * kElements * 4;
  operands.masks = params.mask_begin - params.offset_begin;
  operands.weight_step = params.row_tiles * 512;
  const int32_t units = params.channel_units * params.position_units;
  const int32_t unit_warps = params.warps / params.splits, split = warp / unit_warps;
  const int32_t first_step = split * params.steps / params.splits;
  const int32_t end_step = (split + 1) * params.steps / params.splits;
  const int32_t end_whole = min(params.depth / Traits::kStepElements, end_step);
#pragma unroll 1
  for (int32_t index = first_tile; index < end_tile; ++index) {
    const GradInputTile tile = grad_input_tile(params, index);
    Accumulators<Traits> r_acc;
    bool masked = false;
#pragma unroll 1
    for (int32_t chunk = 0; chunk < params.num_chunks; ++chunk) {
      ring.wait_full();
      operands.s_stage =
          s_begin + ring.slot() * params.stage_bytes + address_shift(stage_source<Element>(params, tile, group, chunk));
      // With several chunks, or with splits of K, a warp has at most one unit.
#pragma unroll 1
      for (int32_t unit = warp - split * unit_warps;; unit += unit_warps) {
        const bool exists = unit < units, last = unit + unit_warps >= units;
        const int32_t channel_unit = unit / params.position_units;
        const int2* s_unit = s_positions + (unit - channel_unit * params.position_units) * Traits::kUnitPositions;
        if (exists) {
          if (chunk == 0) {
            masked = place_unit<Traits>(params, tile, s_unit, s_outside, &operands);
            element::clear(r_acc);
          }
          operands.s_weight = s_begin + params.weight_begin +
                              (chunk * params.steps * params.row_tiles + channel_unit * Traits::kColumnTiles) * 512 +
                              lane * 16;
          const int32_t begin_masked = masked ? first_step : max(first_step, end_whole);
          multiply_steps<Traits, false>(r_acc, operands, first_step, begin_masked);
          multiply_steps<Traits, true>(r_acc, operands, begin_masked, end_step);
        }
        if (last) {
          __syncwarp();
          if (lane == 0) ptx::mbarrier_arrive(ring.empty());
        }
        if (chunk == params.num_chunks - 1) {
          if (params.splits > 1) {
            constexpr uint32_t kUnitBytes = Traits::kColumnTiles * Traits::kPositionTiles * 512;
            const uint32_t s_accumulators = s_begin + params.accumulators_begin + unit * kUnitBytes + lane * 16;
            ptx::named_barrier(2, params.warps * 32);  // the accumulators of the previous tile have been read
            if (split > 0 && exists)
              exchange_accumulators<Traits, false>(r_acc, s_accumulators + (split - 1) * units * kUnitBytes);
            ptx::named_barrier(2, params.warps * 32);  // the accumulators of all splits are stored
#pragma unroll 1
            for (int32_t i = 0; i < params.splits - 1 && split == 0 && exists; ++i) {
              exchange_accumulators<Traits, true>(r_acc, s_accumulators + i * units * kUnitBytes);
            }
          }
          if (exists && split == 0) {
            const int32_t ci = channel_unit * Traits::kUnitColumns;
            if (params.result_channels_last) {
              store_unit_channels_last<Traits>(params, tile, group, r_acc, s_unit, ci);
            } else if (!params.wide) {
              store_unit<Traits, 1>(params, tile, group, r_acc, s_unit, ci);
            } else if (Traits::kPlaneChannels == 4 || params.run == 16) {
              store_unit<Traits, 4>(params, tile, group, r_acc, s_unit, ci);
            } else {
              store_unit<Traits, 2>(params, tile, group, r_acc, s_unit, ci);
            }
          }
        }
        if (last) break;
      }
      ring.advance();
    }
  }
#endif
}

}  // namespace convt::mma_sm90a
