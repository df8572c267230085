// Forward pass of memory-bound layers: small groups, few channels, strides that leave most phases without taps. A CTA
// keeps the weights of a *pass* (thin/layout.h) in shared memory and loops over tiles of positions. It loads the source
// tile, accumulates all phases of the tile in registers, stages the results in the source's memory, and stores
// contiguous runs. Launched by thin/launch.cpp.
#pragma once

#include "thin/loader.cuh"
#include "thin/mainloop.cuh"
#include "thin/store.cuh"
#include "thin/tile.cuh"

namespace convt::thin {

// Fills the tables that all tiles share: the staged offset of each virtual output (or -1), the biases of the pass's
// channels, the steps of a sum, the quads of virtual outputs that have each tap, and the offsets of a thread's
// positions.
template <typename Traits>
__device__ __forceinline__ void make_tables(const Params& params, const Pass& pass, int32_t* s_outputs, float* s_bias,
                                            Step* s_steps, uint8_t* s_quads, int2* s_positions) {
  using Element = typename Traits::Element;
  constexpr int32_t kBytes = sizeof(Element);
  const int32_t channels = pass.num_groups * pass.num_co;
  for (int32_t channel = threadIdx.x; channel < channels; channel += blockDim.x) {
    s_bias[channel] = bias_of<Element>(params, int64_t{pass.group} * params.group_co + pass.co + channel);
  }
  if (pass.num_filled_h == 0) return;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.warps_w * 32 * Traits::kPositions; index += blockDim.x) {
    int32_t column;
    const int32_t row = params.by_pitch(index, &column);
    const bool exists = row < params.tile_h && column < params.tile_w;
    s_positions[index] =
        exists ? make_int2(row << 16 | column, staged_offset(params, 0, row, 0, column * params.w.out_stride) * kBytes)
               : make_int2(0, -1);
  }
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < params.outputs * params.block_groups; index += blockDim.x) {
    const int32_t group = index / params.outputs;
    const VirtualOutput output = virtual_output(params, pass, index - group * params.outputs);
    const int32_t channel = group * params.group_co + output.co;
    s_outputs[index] =
        output.exists && group < pass.num_groups
            ? (staged_offset(params, channel, 0, output.phase_h - pass.phase_h, output.phase_w) * kBytes) << 8 | channel
            : -256;
  }
  // Two extra steps after those of all channels in shared memory, which the mainloop prefetches.
  const int32_t steps = params.chunk_ci * params.taps + 2;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < steps; index += blockDim.x) {
    const int32_t ci = min(index / params.taps, params.chunk_ci - 1), tap = index % params.taps;
    const int32_t t_h = tap / params.w.num_taps, t_w = tap - t_h * params.w.num_taps;
    const int32_t offset = ci * params.channel_pitch + params.tap_row[t_h] + params.tap_column[t_w];
    s_steps[index] = Step{offset * static_cast<int32_t>(sizeof(Element)), 0x10000u << t_h | 1u << t_w};
  }
  if (params.all_taps) return;
#pragma unroll 1
  for (int32_t index = threadIdx.x; index < steps * params.output_blocks; index += blockDim.x) {
    const int32_t block = index / steps, tap = (index - block * steps) % params.taps;
    const int32_t t_h = tap / params.w.num_taps, t_w = tap - t_h * params.w.num_taps;
    uint32_t quads = 0;
#pragma unroll 1
    for (int quad = 0; quad < Traits::kQuads; ++quad) {
      const VirtualOutput output = virtual_output(params, pass, block * Traits::kOutputs + 4 * quad);
      const bool has_tap =
          weight_tap(params.h, t_h, output.phase_h) >= 0 && weight_tap(params.w, t_w, output.phase_w) >= 0;
      quads |= static_cast<uint32_t>(output.exists && has_tap) << quad;
    }
    s_quads[index] = static_cast<uint8_t>(quads);
  }
}

template <typename Traits>
__global__ void __launch_bounds__(kMaxThreads, Traits::kMinBlocks) thin_kernel(const __grid_constant__ Params params) {
  using Element = typename Traits::Element;
  constexpr int kPositions = Traits::kPositions;
  extern __shared__ __align__(16) unsigned char s_bytes[];
  auto* s_source = reinterpret_cast<Element*>(s_bytes);
  auto* s_stage = reinterpret_cast<Element*>(s_bytes);  // reuses the source's memory
  auto* s_weight = reinterpret_cast<float*>(s_bytes + params.weight_begin);
  auto* s_outputs = reinterpret_cast<int32_t*>(s_bytes + params.output_begin);
  auto* s_bias = reinterpret_cast<float*>(s_bytes + params.bias_begin);
  auto* s_steps = reinterpret_cast<Step*>(s_bytes + params.step_begin);
  auto* s_quads = s_bytes + params.quad_begin;
  auto* s_outside = reinterpret_cast<uint32_t*>(s_bytes + params.outside_begin);
  auto* s_positions = reinterpret_cast<int2*>(s_bytes + params.position_begin);

  // Prologue: data that all tiles share. The first tile's barrier completes it.
  const Pass pass = pass_of_block(params);
  make_tables<Traits>(params, pass, s_outputs, s_bias, s_steps, s_quads, s_positions);
  if (pass.num_filled_h > 0) load_weight<Traits>(params, pass, s_weight, reinterpret_cast<int32_t*>(s_bytes));

  // This thread computes a block of virtual outputs of one group, at kPositions positions of every tile.
  const int32_t warp = __shfl_sync(0xffffffffu, static_cast<int32_t>(threadIdx.x) / 32, 0);
  const int32_t warp_w = warp % params.warps_w;
  const int32_t block = warp / params.warps_w % params.output_blocks;
  const int32_t group = warp / params.warps_w / params.output_blocks;
  const int32_t first_position = warp_w * kPositions * 32 + static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t taps = params.taps;

  bool columns_listed = false;
  int32_t staged_shift = -1;
#pragma unroll 1
  for (int32_t index = pass.first_tile; index < pass.end_tile; ++index) {
    const Tile tile = tile_of(params, index);
    TileStore store;
#ifdef CONVT_HAS_BULK_COPY
    ptx::bulk_wait_read();
#endif
    __syncthreads();  // all threads have stored the previous tile
    if (pass.num_filled_h > 0) {
      float r_acc[Traits::kOutputs][kPositions] = {};
      const bool tile_inside =
          is_inside(params.h, tile.q_h, params.tile_h) && is_inside(params.w, tile.q_w, params.tile_w);
      uint32_t r_outside[kPositions];
      bool all_inside = true;
      if (!tile_inside) {
        list_outside(params.h, tile.q_h, params.tile_h, s_outside);
        // If one tile spans a row, all tiles share the list of columns.
        if (params.tiles_w > 1 || !columns_listed) {
          list_outside(params.w, tile.q_w, params.tile_w, s_outside + params.tile_h);
          columns_listed = true;
        }
      }
#pragma unroll 1
      for (int32_t ci = 0; ci < params.group_ci; ci += params.chunk_ci) {
        if (ci > 0) __syncthreads();  // all threads have read the previous channels
        load_source(params, pass, tile, ci, s_source);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();  // the channels have arrived for all threads
        if (ci == 0 && !tile_inside) {
#pragma unroll
          for (int j = 0; j < kPositions; ++j) {
            const int32_t place = s_positions[first_position + 32 * j].x;
            r_outside[j] = s_outside[place >> 16] << 16 | s_outside[params.tile_h + (place & 0xffff)];
            all_inside = all_inside && r_outside[j] == 0;
          }
          all_inside = __all_sync(0xffffffffu, all_inside) != 0;
        }
        const int32_t num_ci = min(params.chunk_ci, params.group_ci - ci);
        const Element* s_first = s_source + group * params.group_ci * params.channel_pitch + first_position;
        const float* s_block_weight =
            s_weight + (group * params.group_ci + ci) * taps * params.outputs + block * Traits::kOutputs;
        const int32_t steps = num_ci * taps;
        const uint8_t* s_block_quads = s_quads + block * (params.chunk_ci * taps + 2);
        if (all_inside && params.all_taps) {
          multiply<Traits, true, true>(r_acc, steps, s_first, r_outside, s_block_weight, params.outputs, s_steps,
                                       s_block_quads);
        } else if (all_inside) {
          multiply<Traits, true, false>(r_acc, steps, s_first, r_outside, s_block_weight, params.outputs, s_steps,
                                        s_block_quads);
        } else if (params.all_taps) {
          multiply<Traits, false, true>(r_acc, steps, s_first, r_outside, s_block_weight, params.outputs, s_steps,
                                        s_block_quads);
        } else {
          multiply<Traits, false, false>(r_acc, steps, s_first, r_outside, s_block_weight, params.outputs, s_steps,
                                         s_block_quads);
        }
      }
      __syncthreads();  // all threads have read the source, whose memory the results reuse
      store = make_tile_store<Element>(params, pass, tile);
      // The bias is added last. The sum is rounded once.
      const int32_t* s_block_outputs = s_outputs + group * params.outputs + block * Traits::kOutputs;
      unsigned char* s_results = s_bytes + store.shift * sizeof(Element);
      auto stage = [&](int o, int j, int32_t place, float bias) {
        *reinterpret_cast<Element*>(s_results + place) = element::to_element<Element>(element::add(r_acc[o][j], bias));
      };
      if constexpr (Traits::kOutputs <= Traits::kPositions) {
        int32_t r_entry[Traits::kOutputs];
        float r_bias[Traits::kOutputs];
#pragma unroll
        for (int o = 0; o < Traits::kOutputs; ++o) {
          r_entry[o] = s_block_outputs[o];
          r_bias[o] = s_bias[r_entry[o] & 0xff];
        }
#pragma unroll
        for (int j = 0; j < kPositions; ++j) {
          const int32_t staged = s_positions[first_position + 32 * j].y;
          if (staged < 0) continue;
#pragma unroll
          for (int o = 0; o < Traits::kOutputs; ++o) {
            if (r_entry[o] >= 0) stage(o, j, (r_entry[o] >> 8) + staged, r_bias[o]);
          }
        }
      } else {
        int32_t r_staged[kPositions];
        bool all_exist = true;
#pragma unroll
        for (int j = 0; j < kPositions; ++j) {
          r_staged[j] = s_positions[first_position + 32 * j].y;
          all_exist = all_exist && r_staged[j] >= 0;
        }
        all_exist = __all_sync(0xffffffffu, all_exist) != 0;
#pragma unroll
        for (int o = 0; o < Traits::kOutputs; ++o) {
          const int32_t entry = s_block_outputs[o];
          if (entry < 0) continue;
          const float bias = s_bias[entry & 0xff];
          if (all_exist) {
#pragma unroll
            for (int j = 0; j < kPositions; ++j) stage(o, j, (entry >> 8) + r_staged[j], bias);
          } else {
#pragma unroll
            for (int j = 0; j < kPositions; ++j) {
              if (r_staged[j] >= 0) stage(o, j, (entry >> 8) + r_staged[j], bias);
            }
          }
        }
      }
    } else {
      store = make_tile_store<Element>(params, pass, tile);
    }
    // A pass without taps stages only biases. All tiles of the same alignment share them.
    if (pass.num_filled_h > 0 || store.shift != staged_shift) {
      stage_empty_phases(params, pass, s_bias, s_stage + store.shift);
      staged_shift = store.shift;
    }
#ifdef CONVT_HAS_BULK_COPY
    ptx::fence_proxy_async();
#endif
    __syncthreads();  // the staged tile is complete
    store_tile(params, pass, store, s_stage + store.shift);
  }
#ifdef CONVT_HAS_BULK_COPY
  ptx::bulk_wait_read();  // bulk stores must have read shared memory before the CTA exits
#endif
}

}  // namespace convt::thin
