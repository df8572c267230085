// Copies global memory to one pipeline stage in shared memory and converts to the accumulator's type. Input elements
// outside the image are not loaded, because the mainloop never multiplies them.
#pragma once

#include "problem/fast_divmod.h"
#include "ptx/cp_async.cuh"
#include "simt/layout.h"
#include "simt/stage.cuh"

namespace convt::simt {

// Copies one element. `s_destination` is a shared-memory address.
template <typename Traits>
__device__ __forceinline__ void load_element(uint32_t s_destination, const typename Traits::Element* g_source) {
  using Element = typename Traits::Element;
  if constexpr (std::is_same_v<Element, typename Traits::Accumulator>) {
    ptx::cp_async<sizeof(Element)>(s_destination, g_source);
  } else {
    ptx::store_shared(s_destination, __float_as_uint(to_accumulator(*g_source)));
  }
}

// Copies kElems contiguous elements of each of this thread's channels, at the same offset of each channel's plane. The
// channels are ci_begin, ci_begin + ci_step, ... below num_ci; g_step is the stride of this sequence in elements,
// s_step in bytes.
template <typename Traits, int kElems>
__device__ __forceinline__ void load_channels(uint32_t s_destination, const typename Traits::Element* g_source,
                                              int32_t ci_begin, int32_t ci_step, int32_t num_ci, int64_t g_step,
                                              uint32_t s_step) {
#pragma unroll 4
  for (int32_t ci = ci_begin; ci < num_ci; ci += ci_step) {
    if constexpr (kElems == 1) {
      load_element<Traits>(s_destination, g_source);
    } else {
      ptx::cp_async<kElems * sizeof(typename Traits::Element)>(s_destination, g_source);
    }
    g_source += g_step;
    s_destination += s_step;
  }
}

// The same for channels that are taps along the depth (Params): channel first_ci + ci_begin and so on of the group,
// whose channel 0 is at g_group. c_step and tap_step are elements between channels and between taps. Copies kQuad
// elements if `quads`, otherwise one.
template <typename Traits, int kQuad>
__device__ __forceinline__ void load_depth_taps(uint32_t s_destination, const typename Traits::Element* g_group,
                                                const FastDivmod& depth_taps, int32_t first_ci, int32_t ci_begin,
                                                int32_t ci_step, int32_t num_ci, int64_t c_step, int64_t tap_step,
                                                uint32_t s_step, bool quads) {
#pragma unroll 1
  for (int32_t ci = ci_begin; ci < num_ci; ci += ci_step) {
    int32_t tap;
    const int32_t channel = depth_taps(first_ci + ci, &tap);
    const auto* g_source = g_group + channel * c_step + tap * tap_step;
    if (kQuad > 1 && quads) {
      load_channels<Traits, kQuad>(s_destination, g_source, 0, 1, 1, 0, 0);
    } else {
      load_channels<Traits, 1>(s_destination, g_source, 0, 1, 1, 0, 0);
    }
    s_destination += s_step;
  }
}

// Copies for one input channel of a stage: element offsets in global memory (-1: no copy) and their destinations.
// Computing them costs far more than the copy, so all stages with the same taps share one list.
struct CopyList {
  int64_t* s_input;         // [input positions]; position i is element i of the channel's plane
  int64_t* s_weight;        // [block_co * taps]
  int32_t* s_weight_place;  // [block_co * taps], destination: element of the channel's weight
};

// Lists a channel's plane [tile_n][rows][pitch]; offsets count from the tile's first image and channel.
__device__ __forceinline__ void list_input(const Params& params, const Tile& tile, const Stage& stage,
                                           const Phase& phase_h, const Phase& phase_w, const CopyList& list) {
  const ConvTProblem& problem = params.problem;
  const auto [rows, columns, pitch, num_positions] = make_stage_input(params, stage, phase_h, phase_w);
  const int32_t row_begin = first_coordinate(problem.h, phase_h, tile.p_h_begin, stage.kh_begin, stage.num_kh);
  const int32_t column_begin = first_input_column(params, tile, stage, phase_w);
  const auto by_pitch = SmallDivmod::of(pitch), by_rows = SmallDivmod::of(rows.extent),
             by_tile_h = SmallDivmod::of(params.shape.tile_h), by_tile_w = SmallDivmod::of(params.shape.tile_w);
  // Input coordinate of element `index` of a window. The taps either overlap or have separate copies of the tile
  // (struct Window).
  auto coordinate = [](int32_t index, int32_t begin, const Window& window, const SmallDivmod& by_tile,
                       int32_t shift_step, int32_t position_step) {
    if (!window.copies) return begin + index * window.unit;
    int32_t within;
    const int32_t copy = by_tile(index, &within);
    return begin + copy * abs(shift_step) + within * position_step;
  };
  for (int32_t position = threadIdx.x; position < num_positions; position += blockDim.x) {
    int32_t index, row;
    const int32_t image_row = by_pitch(position, &index);
    const int32_t image = by_rows(image_row, &row);
    const int32_t ih = coordinate(row, row_begin, rows, by_tile_h, phase_h.shift_step, problem.h.position_step);
    const int32_t iw = coordinate(index, column_begin, columns, by_tile_w, phase_w.shift_step, problem.w.position_step);
    // The mainloop never multiplies elements outside the image, so they are not loaded.
    const bool inside = index < columns.extent && static_cast<uint32_t>(ih) < static_cast<uint32_t>(problem.h.in) &&
                        static_cast<uint32_t>(iw) < static_cast<uint32_t>(problem.w.in) &&
                        tile.n_begin + image < problem.batch;
    list.s_input[position] =
        inside ? image * problem.x_stride[0] + ih * problem.x_stride[2] + iw * problem.x_stride[3] : int64_t{-1};
  }
}

// Lists a channel's weight [channel group][taps | 1][thread_co]. Output channel i * groups + g of the tile is channel i
// of group g. Neighbouring groups thus contain neighbouring channels, which avoids bank conflicts in the epilogue's
// writes. Channels past c_out are not loaded: their results are never stored.
template <typename Traits>
__device__ __forceinline__ void list_weight(const Params& params, const Tile& tile, const Stage& stage,
                                            const Phase& phase_h, const Phase& phase_w, const CopyList& list) {
  const ConvTProblem& problem = params.problem;
  const int32_t num_taps = stage.num_kh * stage.num_kw;
  const int32_t block_co = params.shape.block_co;
  const int32_t num_co = min(block_co, params.group_c_out - tile.co_begin);
  const int32_t groups_log2 = params.channel_groups_log2;
  const bool channels_first = problem.w_stride[1] < problem.w_stride[3];  // contiguous dimension of the weight
  const auto by_fastest = SmallDivmod::of(channels_first ? block_co : num_taps),
             by_num_kw = SmallDivmod::of(stage.num_kw);
  for (int32_t element = threadIdx.x; element < block_co * num_taps; element += blockDim.x) {
    int32_t remainder, tap_w;
    const int32_t quotient = by_fastest(element, &remainder);
    const int32_t co = channels_first ? remainder : quotient;
    const int32_t tap = channels_first ? quotient : remainder;
    const int32_t tap_h = by_num_kw(tap, &tap_w);
    const int32_t kh = phase_h.first_tap + (stage.kh_begin + tap_h) * phase_h.tap_step;
    const int32_t kw = phase_w.first_tap + (stage.kw_begin + tap_w) * phase_w.tap_step;
    const int32_t group = co & ((1 << groups_log2) - 1);
    const int32_t channel = tile.co_begin + co;
    list.s_weight[element] = co < num_co ? (channel >> params.fused_log2) * problem.w_stride[1] +
                                               (channel & ((1 << params.fused_log2) - 1)) * params.weight_phase_stride +
                                               kh * problem.w_stride[2] + kw * problem.w_stride[3]
                                         : int64_t{-1};
    list.s_weight_place[element] = (group * (num_taps | 1) + tap) * Traits::kThreadCo + (co >> groups_log2);
  }
}

// Loads the input of a stage, [num_ci][tile_n][rows][pitch]. `quads`: copies four columns at a time; each quad is
// 16-byte aligned and either entirely inside or entirely outside the image.
template <typename Traits>
__device__ __forceinline__ void load_input(const Params& params, int64_t input_begin, const Stage& stage,
                                           int32_t num_positions, bool quads, const CopyList& list, uint32_t s_input) {
  using Element = typename Traits::Element;
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  constexpr int kQuad = std::is_same_v<Element, float> ? 4 : 1;  // other types are converted one by one
  const uint32_t plane_bytes = input_plane(num_positions) * kBytes;
  const int64_t c_stride = params.problem.x_stride[1];

  // Neighbouring threads load neighbouring columns. In a channels_last input, 8 lanes load 8 neighbouring channels (one
  // sector of float32). If there are more threads than positions, several threads share the channels of one position.
  const int32_t thread = threadIdx.x, num_threads = blockDim.x;
  const int32_t width = quads ? 4 : 1;
  const int32_t num_items = quads ? num_positions / 4 : num_positions;
  int32_t item, item_step, ci_begin, ci_step;
  if (params.channels_last_input) {
    constexpr int32_t kLanes = 8;
    item = thread / kLanes, item_step = num_threads / kLanes;
    ci_begin = thread % kLanes, ci_step = kLanes;
  } else {
    item_step = min(num_threads, (num_items + 31) / 32 * 32);
    ci_step = num_threads / item_step;
    ci_begin = thread / item_step;
    item = thread - ci_begin * item_step;
    if (ci_begin >= ci_step) return;
  }
  const Element* g_input = static_cast<const Element*>(params.x) + input_begin;  // [num_ci, ...]
  if constexpr (Traits::kTapSums) g_input += stage.depth * params.input_tap;
  s_input += ci_begin * plane_bytes;
  const uint32_t s_step = ci_step * plane_bytes;
  const int32_t num_ci = stage.num_ci;
  if (!Traits::kTapSums && params.depth_taps.value > 1) {
#pragma unroll 1
    for (; item < num_items; item += item_step) {
      const int64_t offset = list.s_input[item * width];
      if (offset < 0) continue;
      load_depth_taps<Traits, kQuad>(s_input + item * width * kBytes, g_input + offset, params.depth_taps,
                                     stage.ci_begin, ci_begin, ci_step, num_ci, c_stride, params.input_tap, s_step,
                                     quads);
    }
    return;
  }
  g_input += (stage.ci_begin + ci_begin) * c_stride;
  const int64_t g_step = ci_step * c_stride;
  for (; item < num_items; item += item_step) {
    const int64_t offset = list.s_input[item * width];
    if (offset < 0) continue;
    const Element* g_source = g_input + offset;
    const uint32_t s_destination = s_input + item * width * kBytes;
    if constexpr (kQuad == 4) {
      if (quads) {
        load_channels<Traits, 4>(s_destination, g_source, ci_begin, ci_step, num_ci, g_step, s_step);
        continue;
      }
    }
    load_channels<Traits, 1>(s_destination, g_source, ci_begin, ci_step, num_ci, g_step, s_step);
  }
}

// Loads the weight of a stage whose taps are contiguous, four elements per load. The values pass through registers
// because their destinations in shared memory are not contiguous. Loads are issued in batches, so that their latencies
// overlap.
__device__ __forceinline__ void load_weight_vectors(const Params& params, const Tile& tile, int64_t weight_begin,
                                                    const Stage& stage, const CopyList& list, uint32_t s_weight) {
  constexpr int kBatch = 4;
  const int32_t num_taps = stage.num_kh * stage.num_kw;
  const int32_t num_vectors = params.shape.block_co * num_taps / 4;
  const int32_t num_co = min(params.shape.block_co, params.group_c_out - tile.co_begin);
  const int32_t valid_vectors = num_co * num_taps / 4;
  const uint32_t plane_bytes = weight_plane(params.shape.block_co, num_taps) * sizeof(float);
  const int64_t ci_stride = params.problem.w_stride[0];
  const float* g_weight = static_cast<const float*>(params.w) + weight_begin + stage.ci_begin * ci_stride +
                          tile.co_begin * params.problem.w_stride[1];  // [num_ci, block_co, k_h, k_w]
  const auto by_vectors = SmallDivmod::of(num_vectors);
  const int32_t total = stage.num_ci * num_vectors;
  for (int32_t begin = threadIdx.x; begin < total; begin += kBatch * blockDim.x) {
    float4 r_values[kBatch];
    int32_t ci[kBatch], vector[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int32_t item = begin + i * blockDim.x;
      ci[i] = by_vectors(item, &vector[i]);
      if (item < total && vector[i] < valid_vectors) {
        r_values[i] = *reinterpret_cast<const float4*>(g_weight + ci[i] * ci_stride + 4 * vector[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (begin + i * blockDim.x >= total) break;
      const int4 places = reinterpret_cast<const int4*>(list.s_weight_place)[vector[i]];
      const uint32_t s_plane = s_weight + ci[i] * plane_bytes;
      ptx::store_shared(s_plane + places.x * 4, __float_as_uint(r_values[i].x));
      ptx::store_shared(s_plane + places.y * 4, __float_as_uint(r_values[i].y));
      ptx::store_shared(s_plane + places.z * 4, __float_as_uint(r_values[i].z));
      ptx::store_shared(s_plane + places.w * 4, __float_as_uint(r_values[i].w));
    }
  }
}

// Loads the weight of a stage, [num_ci][channel group][taps | 1][thread_co].
template <typename Traits>
__device__ __forceinline__ void load_weight(const Params& params, const Tile& tile, int64_t weight_begin,
                                            const Stage& stage, const CopyList& list, uint32_t s_weight) {
  using Element = typename Traits::Element;
  if constexpr (std::is_same_v<Element, float>) {
    if (params.weight_vectors) {
      load_weight_vectors(params, tile, weight_begin, stage, list, s_weight);
      return;
    }
  }
  constexpr uint32_t kBytes = sizeof(typename Traits::Accumulator);
  const int32_t num_taps = stage.num_kh * stage.num_kw;
  const int32_t num_elements = params.shape.block_co * num_taps;
  const int32_t element_step = min(static_cast<int32_t>(blockDim.x), (num_elements + 31) / 32 * 32);
  const int32_t ci_step = blockDim.x / element_step;
  const int32_t ci_first = threadIdx.x / element_step;
  if (ci_first >= ci_step) return;
  const uint32_t plane_bytes = weight_plane(params.shape.block_co, num_taps) * kBytes;
  const int64_t ci_stride = params.problem.w_stride[0];
  const Element* g_weight = static_cast<const Element*>(params.w) + weight_begin;  // [num_ci, ...]
  if constexpr (Traits::kTapSums) g_weight += stage.depth * params.weight_tap;
  s_weight += ci_first * plane_bytes;
  const uint32_t s_step = ci_step * plane_bytes;
  const int32_t num_ci = stage.num_ci;
  int32_t element = threadIdx.x - ci_first * element_step;
  if (!Traits::kTapSums && params.depth_taps.value > 1) {
#pragma unroll 1
    for (; element < num_elements; element += element_step) {
      const int64_t offset = list.s_weight[element];
      if (offset < 0) continue;
      load_depth_taps<Traits, 1>(s_weight + list.s_weight_place[element] * kBytes, g_weight + offset, params.depth_taps,
                                 stage.ci_begin, ci_first, ci_step, num_ci, ci_stride, params.weight_tap, s_step,
                                 false);
    }
    return;
  }
  g_weight += (stage.ci_begin + ci_first) * ci_stride;
  const int64_t g_step = ci_step * ci_stride;
  for (; element < num_elements; element += element_step) {
    const int64_t offset = list.s_weight[element];
    if (offset < 0) continue;
    load_channels<Traits, 1>(s_weight + list.s_weight_place[element] * kBytes, g_weight + offset, ci_first, ci_step,
                             num_ci, g_step, s_step);
  }
}

}  // namespace convt::simt
