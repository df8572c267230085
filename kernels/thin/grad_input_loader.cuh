// Copies global memory to shared memory: stages of grad_output unconverted, the weights converted to float32. Elements
// outside grad_output are not loaded, because the mainloop never multiplies them.
#pragma once

#include "element/arithmetic.cuh"
#include "problem/fast_divmod.h"
#include "ptx/cp_async.cuh"
#include "thin/grad_input_layout.h"
#include "tiling/tile.cuh"

namespace convt::thin {

using tiling::grad_input_tile;
using tiling::GradInputTile;
using tiling::taps_outside;

// Work that all tiles of a CTA share.
struct GradInputPass {
  int32_t group;  // first of num_groups
  int32_t num_groups;
  int32_t ci;     // first result channel within each group
  int32_t num_ci;
  int32_t first_tile;
  int32_t end_tile;
};

__device__ __forceinline__ GradInputPass grad_input_pass(const GradInputParams& params) {
  GradInputPass pass;
  const int32_t block = static_cast<int32_t>(blockIdx.x);
  const int32_t index = block % params.passes;
  pass.first_tile = block / params.passes * params.tiles_per_block;
  pass.end_tile = min(pass.first_tile + params.tiles_per_block, params.num_tiles);
  pass.ci = index % params.ci_tiles * params.block_ci;
  pass.num_ci = min(params.block_ci, params.group_ci - pass.ci);
  pass.group = index / params.ci_tiles * params.block_groups;
  pass.num_groups = min(params.block_groups, params.groups - pass.group);
  return pass;
}

// Row and column of grad_output that tap 0 of a tile's first position reads.
__device__ __forceinline__ int32_t first_row(const GradInputParams& params, const GradInputTile& tile) {
  return tile.h * params.h.stride - params.h.padding;
}
__device__ __forceinline__ int32_t first_column(const GradInputParams& params, const GradInputTile& tile) {
  return tile.w * params.w.stride - params.w.padding;
}

// Address of the first column of channel co, slot 0. It may be outside grad_output.
template <typename Element>
__device__ __forceinline__ const Element* stage_source(const GradInputParams& params, const GradInputPass& pass,
                                                       const GradInputTile& tile, int32_t co) {
  return static_cast<const Element*>(params.gy) + tile.image * params.gy_stride[0] +
         (int64_t{pass.group} * params.group_co + co) * params.gy_stride[1] +
         int64_t{first_row(params, tile)} * params.gy_stride[2] +
         int64_t{first_column(params, tile)} * params.gy_stride[3];
}

// Offset of a stage's first element: its offset within a vector in global memory.
template <typename Element>
__device__ __forceinline__ int32_t stage_shift(const Element* g_source) {
  constexpr uint32_t kElems = 16 / sizeof(Element);
  return static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(g_source) / sizeof(Element)) &
                              (kElems - 1));
}

// Starts the copies of channels co .. co + chunk_co - 1 of every group of the pass.
template <typename Element>
__device__ __forceinline__ void load_stage(const GradInputParams& params, const GradInputPass& pass,
                                           const GradInputTile& tile, int32_t co, unsigned char* s_stage) {
  constexpr int32_t kBytes = sizeof(Element), kElems = 16 / kBytes;
  const Element* g_source = stage_source<Element>(params, pass, tile, co);
  auto* s_source = reinterpret_cast<Element*>(s_stage) + stage_shift(g_source);
  const int32_t row_0 = first_row(params, tile), column_0 = first_column(params, tile);
  const int32_t begin = max(0, -column_0), end = min(params.columns, params.w.out - column_0);
  if (begin >= end) return;
  const int32_t channels =
      pass.num_groups > 1 ? pass.num_groups * params.group_co : min(params.chunk_co, params.group_co - co);
  const int32_t lanes = 1 << params.load_lanes_log2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) & (lanes - 1);
  const int32_t units = static_cast<int32_t>(blockDim.x) >> params.load_lanes_log2;
#pragma unroll 1
  for (int32_t unit = static_cast<int32_t>(threadIdx.x) >> params.load_lanes_log2; unit < channels * params.slots;
       unit += units) {
    int32_t slot, k = 0;
    const int32_t channel = params.by_slots(unit, &slot);
    int32_t row, place;  // of the slot, relative to the tile's first
    if (params.apart) {
      const int32_t q = params.by_kernel_h(slot, &k);
      row = q * params.h.stride + k * params.h.dilation;
      place = q * params.pitches.position + k * params.pitches.tap;
    } else {
      row = slot * params.row_step;
      place = slot * params.pitches.slot;
    }
    if (row_0 + row < 0 || row_0 + row >= params.h.out) continue;
    const Element* g_row = g_source + channel * params.gy_stride[1] + row * params.gy_stride[2];
    Element* s_row = s_source + channel * params.pitches.channel + place;
    if (params.copy_vectors) {
      // Copies whole vectors, starting with the one that contains the first column. The last copy reads no byte past
      // the row.
      const int32_t head = stage_shift(g_row + begin);
      const Element* g_vector = g_row + begin - head + lane * kElems;
      uint32_t s_vector = ptx::shared_address(s_row + begin - head + lane * kElems);
      int32_t rest = (end - begin + head) * kBytes - lane * 16;
#pragma unroll 2
      for (; rest >= 16; rest -= lanes * 16) {
        ptx::cp_async_past_l1(s_vector, g_vector);
        g_vector += lanes * kElems, s_vector += lanes * 16;
      }
      if (rest > 0) ptx::cp_async_rest(s_vector, g_vector, rest);
    } else {
#pragma unroll 4
      for (int32_t i = begin + lane; i < end; i += lanes) {
        const Element* g_element = g_row + i * params.gy_stride[3];
        if constexpr (sizeof(Element) == 4) {
          ptx::cp_async<4>(ptx::shared_address(s_row + i), g_element);
        } else {
          s_row[i] = *g_element;
        }
      }
    }
  }
}

// Loads all weights of the pass: [group][co][tap][block_ci], 0 past its channels.
template <typename Element>
__device__ __forceinline__ void load_weight(const GradInputParams& params, const GradInputPass& pass, float* s_weight) {
  const int32_t taps = params.h.kernel * params.w.kernel, of_channel = params.group_co * taps;
  const int64_t group_stride = params.group_ci * params.weight_stride[0];
  const auto* g_weight =
      static_cast<const Element*>(params.weight) + pass.group * group_stride + pass.ci * params.weight_stride[0];
  const auto by_channel = SmallDivmod::of(of_channel), by_taps = SmallDivmod::of(taps),
             by_columns = SmallDivmod::of(params.w.kernel);
#pragma unroll 8
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < pass.num_groups * params.block_ci * of_channel;
       i += static_cast<int32_t>(blockDim.x)) {
    int32_t place, tap, k_w;
    const int32_t channel = by_channel(i, &place);
    const int32_t group = params.block_groups > 1 ? channel / params.block_ci : 0;
    const int32_t ci = channel - group * params.block_ci;
    const int32_t co = by_taps(place, &tap), k_h = by_columns(tap, &k_w);
    const Element* g_element = g_weight + group * group_stride + ci * params.weight_stride[0] +
                               co * params.weight_stride[1] + k_h * params.weight_stride[2] +
                               k_w * params.weight_stride[3];
    s_weight[(group * of_channel + place) * params.block_ci + ci] =
        ci < pass.num_ci ? element::to_accumulator(*g_element) : 0.0f;
  }
}

}  // namespace convt::thin
