// Transposed convolution on CUDA cores with a documented order of every sum (kernels/ORDER.md). One CTA computes one
// tile (simt/layout.h): block_co output channels at tile_n * tile_h * tile_w positions of one H phase and phases_w W
// phases. Launched by simt/launch.cpp.
#pragma once

#include "plan/kernel_table.h"
#include "ptx/cp_async.cuh"
#include "simt/instances.h"
#include "simt/loader.cuh"
#include "simt/mainloop.cuh"
#include "simt/stage.cuh"
#include "simt/staged_store.cuh"

namespace convt::simt {

// Tile and pipeline state of the CTA, in shared memory.
template <bool kTapSums>
struct TileState {
  Tile tile;
  int64_t input_begin;   // elements before the tile's first image and the group's first source channel
  int64_t weight_begin;  // elements before the group's first weight
  Phase phase_h;
  Phase phases_w[kMaxPhasesW];
  StageCursor<kTapSums> cursor;
  Stage stages[kMaxStages + 1];  // one more than the slots: the stage after the ones in flight is already described
};

// A thread's accumulators. With kTapSums, `taps` accumulates the products of one tap, and `total` accumulates tap
// results.
template <typename Traits>
struct Accumulators {
  using Accumulator = typename Traits::Accumulator;
  static constexpr int kQuads = Traits::kQuads;
  static constexpr int kTotalQuads = Traits::kTapSums ? kQuads : 1;
  Accumulator taps[kQuads][4][Traits::kThreadCo];
  Accumulator total[kTotalQuads][4][Traits::kThreadCo];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int co = 0; co < Traits::kThreadCo; ++co) {
          taps[q][p][co] = 0;
          if constexpr (Traits::kTapSums) total[q][p][co] = 0;
        }
      }
    }
  }

  __device__ __forceinline__ void end_tap() {
    if constexpr (Traits::kTapSums) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
#pragma unroll
        for (int p = 0; p < 4; ++p) {
#pragma unroll
          for (int co = 0; co < Traits::kThreadCo; ++co) {
            total[q][p][co] = add(total[q][p][co], taps[q][p][co]);
            taps[q][p][co] = 0;
          }
        }
      }
    }
  }

  __device__ __forceinline__ Accumulator result(int q, int p, int co) const {
    if constexpr (Traits::kTapSums) return total[q][p][co];
    return taps[q][p][co];
  }
};

// Bias of a channel, counted from the tile's first. Without a bias it is -0: adding -0 leaves every sum unchanged, even
// -0.
template <typename Traits>
__device__ __forceinline__ typename Traits::Accumulator bias_of(const Params& params, const Tile& tile,
                                                                int32_t channel) {
  using Accumulator = typename Traits::Accumulator;
  if (params.bias == nullptr || tile.co_begin + channel >= params.group_c_out) return -Accumulator{0};
  const auto* g_bias = static_cast<const typename Traits::Element*>(params.bias);  // [c_out]
  return to_accumulator(g_bias[(tile.group * params.group_c_out + tile.co_begin + channel) >> params.fused_log2]);
}

// Adds the bias, rounds once, and writes the results of W phase `phase` to the staged outputs. Fused phases are part of
// the channel index.
template <typename Traits>
__device__ __forceinline__ void stage_outputs(const Params& params, const Tile& tile, const Accumulators<Traits>& r_acc,
                                              int32_t phase, typename Traits::Element* s_staged) {
  using Element = typename Traits::Element;
  const int32_t phases = params.columns.phases;
  const int32_t run_length = params.shape.tile_w * phases;
  const int32_t channel_group = channel_group_of_thread(params);
  const int32_t position_step = phases * params.shared.column_stride;
  typename Traits::Accumulator r_bias[Traits::kThreadCo];
  int32_t s_channel[Traits::kThreadCo];
#pragma unroll
  for (int co = 0; co < Traits::kThreadCo; ++co) {
    const int32_t channel = (co << params.channel_groups_log2) + channel_group;
    const int32_t fused_phase = channel & ((1 << params.fused_log2) - 1);
    r_bias[co] = bias_of<Traits>(params, tile, channel);
    s_channel[co] = staged_offset(params.shared, run_length, channel >> params.fused_log2, 0, phase + fused_phase);
  }
#pragma unroll
  for (int q = 0; q < Traits::kQuads; ++q) {
    const QuadPlace quad = quad_of_thread(params, tile, q);
    if (!quad.inside) continue;
    const int32_t image_row = quad.image * params.shape.tile_h + quad.row;
    Element* s_quad = s_staged + staged_offset(params.shared, run_length, 0, image_row, quad.column * phases);
#pragma unroll
    for (int co = 0; co < Traits::kThreadCo; ++co) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        s_quad[s_channel[co] + p * position_step] = to_element<Element>(add(r_acc.result(q, p, co), r_bias[co]));
      }
    }
  }
}

template <typename Traits>
__global__ void __launch_bounds__(kMaxThreads, Traits::kMinBlocks)
    forward_kernel(const __grid_constant__ Params params) {
  using Element = typename Traits::Element;
  using Accumulator = typename Traits::Accumulator;

  extern __shared__ __align__(16) unsigned char s_bytes[];
  constexpr int32_t kBytes = sizeof(Accumulator);
  const uint32_t s_stages = ptx::shared_address(s_bytes);
  auto* s_staged = reinterpret_cast<Element*>(s_bytes + params.shared.staged_bytes_begin);
  CopyList list;
  list.s_input = reinterpret_cast<int64_t*>(s_bytes + params.shared.list_bytes_begin);
  list.s_weight = list.s_input + params.shared.list_input_elems;
  list.s_weight_place = reinterpret_cast<int32_t*>(list.s_weight + params.shared.list_weight_elems);
  __shared__ TileState<Traits::kTapSums> s_state;

  // One warp sets up the CTA's tile, its taps and the first stages.
  const ConvTProblem& problem = params.problem;
  const Tile& tile = s_state.tile;
  const Phase& phase_h = s_state.phase_h;
  auto describe_next = [&](int32_t index) {
    s_state.stages[index] = s_state.cursor.take(params, tile, phase_h, s_state.phases_w);
  };
  if (threadIdx.x < 32) {
    const Tile this_tile = tile_of_block(params.grid, params.shape, blockIdx.x);
    if (threadIdx.x < this_tile.num_phases_w) {
      s_state.phases_w[threadIdx.x] = make_phase(problem.w, this_tile.phase_w_begin + threadIdx.x);
    }
    if (threadIdx.x == 0) {
      s_state.tile = this_tile;
      s_state.phase_h = make_phase(problem.h, this_tile.phase_h);
      const int32_t source_channels =
          Traits::kTapSums ? params.group_c_in : params.group_c_in / params.depth_taps.value;
      s_state.input_begin = this_tile.volume * params.input_volume + this_tile.n_begin * problem.x_stride[0] +
                            int64_t{this_tile.group} * source_channels * problem.x_stride[1];
      s_state.weight_begin = this_tile.group * params.weight_group_stride;
    }
    __syncwarp();
    if (threadIdx.x == 0) {
      s_state.cursor.start(params, tile, phase_h, s_state.phases_w);
      for (int32_t index = 0; index < params.stages; ++index) describe_next(index);
    }
  }
  __syncthreads();  // s_state is complete
  if (tile.p_h_begin >= num_positions(problem.h, tile.phase_h)) return;
  auto* g_y = static_cast<Element*>(params.y) + tile.volume * params.output_volume;
  auto bias_alone = [&](int32_t channel) {
    return to_element<Element>(add(Accumulator{0}, bias_of<Traits>(params, tile, channel)));
  };
  if (phase_h.num_taps == 0 || params.group_c_in == 0) {
    store_tile<false, Element>(problem, params.shape, tile, params.shared, params.columns, params.fused_log2,
                               params.group_c_out, params.channels_last_output, nullptr, g_y, bias_alone);
    return;
  }
  auto load = [&](int32_t index, int32_t slot) {
    const Stage stage = s_state.stages[index];
    if (!stage.end && stage.num_ci > 0) {
      const Phase h = phase_h, w = s_state.phases_w[stage.phase];
      const Tile this_tile = tile;
      const StageInput input = make_stage_input(params, stage, h, w);
      const uint32_t s_stage = s_stages + slot * params.shared.stage_elems * kBytes;
      if (stage.first_of_taps) {
        list_input(params, this_tile, stage, h, w, list);
        list_weight<Traits>(params, this_tile, stage, h, w, list);
        __syncthreads();  // the copy list is complete
      }
      const bool quads = params.input_vectors && !input.columns.copies && input.columns.unit == 1 &&
                         first_input_column(params, this_tile, stage, w) % 4 == 0;
      load_input<Traits>(params, s_state.input_begin, stage, input.num_positions, quads, list, s_stage);
      load_weight<Traits>(params, this_tile, s_state.weight_begin, stage, list,
                          s_stage + params.shared.weight_elems * kBytes);
    }
    ptx::cp_async_commit();
  };

  // Prologue: fill all slots except one.
  for (int32_t slot = 0; slot < params.stages - 1; ++slot) {
    if (slot > 0) __syncthreads();  // all threads have used the copy list of the previous load
    load(slot, slot);
  }

  // Mainloop. `index` walks the stage descriptions, `slot` the shared-memory slots.
  Accumulators<Traits> r_acc;
  r_acc.clear();
  TapBounds<Traits::kQuads> bounds;
  for (int32_t index = 0, slot = 0;;) {
    if (params.stages == 2) {
      ptx::cp_async_wait<0>();
    } else {
      ptx::cp_async_wait<1>();
    }
    __syncthreads();  // this stage has arrived, and all threads have read the previous one
    const Stage stage = s_state.stages[index];
    if (stage.end) break;
    const int32_t newest = index == 0 ? params.stages : index - 1;  // free: described the previous stage
    load(newest == 0 ? params.stages : newest - 1, slot == 0 ? params.stages - 1 : slot - 1);
    if (threadIdx.x == 0) describe_next(newest);

    if (stage.num_ci > 0) {
      const Phase phase_w = s_state.phases_w[stage.phase];
      if (stage.first_of_taps) bounds = make_tap_bounds<Traits>(params, tile, stage, phase_h, phase_w);
      multiply<Traits>(r_acc.taps, bounds, params, stage, phase_h, phase_w,
                       s_stages + slot * params.shared.stage_elems * kBytes);
    }
    if (stage.last_of_tap) r_acc.end_tap();
    if (stage.last_of_phase) {
      // With one phase, the staged outputs overlay the stages. This was the last stage.
      if (params.shape.phases_w == 1) __syncthreads();  // all threads have read the stage
      stage_outputs<Traits>(params, tile, r_acc, stage.phase, s_staged);
      r_acc.clear();
    }
    index = index == params.stages ? 0 : index + 1;
    slot = slot + 1 == params.stages ? 0 : slot + 1;
  }
  // The barrier before the loop's exit completes the staged outputs.
  store_tile<true, Element>(problem, params.shape, tile, params.shared, params.columns, params.fused_log2,
                            params.group_c_out, params.channels_last_output, s_staged, g_y, bias_alone);
}

// Kernel of a row with this thread_co. Returns null for other rows, which another file compiles.
template <int kThreadCo>
const void* kernel_of_co(int32_t instance) {
  return find_kernel<kInstances>(instance, [](auto row) {
    if constexpr (row->thread_co != kThreadCo) {
      return nullptr;
    } else {
      using RowTraits = Traits<row->dtype, row->precision, row->direction, row->thread_co, row->quads>;
      return CONVT_KERNEL(forward_kernel<RowTraits>);
    }
  });
}

}  // namespace convt::simt
