// mma_rows: weights, global memory -> fragments in shared memory.
#pragma once

#include "mma_sm90a/rows_source.cuh"
#include "mma_sm90a/traits.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Element offset of a column's weights of a tap, relative to the pass's first channel; -1 if the column has no such
// tap.
__device__ __forceinline__ int32_t weight_place(const Params& params, const Pass& pass, int32_t tap, int32_t co,
                                                int32_t phase_h, int32_t phase_w) {
  const int32_t t_h = tap / params.w.num_taps, t_w = tap - t_h * params.w.num_taps;
  const int32_t k_h = weight_tap(params.h, t_h, phase_h), k_w = weight_tap(params.w, t_w, phase_w);
  if (co >= pass.num_co || k_h < 0 || k_w < 0) return -1;
  return static_cast<int32_t>(co * params.weight_stride[1] + k_h * params.weight_stride[2] +
                              k_w * params.weight_stride[3]);
}

// Loads all weights of the pass: [tap][step of K][column tile][lane][16 bytes of operand A]. s_places contains
// weight_place() of each tap and column.
template <typename Traits>
__device__ __forceinline__ void load_weights(const Params& params, const Pass& pass, unsigned char* s_weights,
                                             const int32_t* s_places) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kPlaneChannels;
  const int32_t columns = params.column_tiles * kMmaColumns;
  const auto* g_weight = static_cast<const Element*>(params.weight) + pass.group * params.weight_group_stride +
                         pass.co * params.weight_stride[1];
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, column = lane / 4;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t fragments = params.taps * params.steps * params.column_tiles;
  constexpr int kBatch = 8 / kChannels;  // all loads before the first store
#pragma unroll 1
  for (int32_t begin = warp; begin < fragments; begin += kBatch * params.warps) {
    Element r_weight[kBatch][2][kChannels];  // columns g and g + 8
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int32_t fragment = begin + i * params.warps;
      int32_t column_tile, step;
      const int32_t tap_step = params.by_column_tiles(fragment, &column_tile);
      const int32_t tap = params.by_steps(tap_step, &step);
      const int32_t first = (4 * step + lane % 4) * kChannels;
      const int32_t* s_place = s_places + tap * columns + column_tile * kMmaColumns + column;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t place = fragment < fragments ? s_place[8 * half] : -1;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          const bool exists = place >= 0 && first + c < params.group_ci;
          r_weight[i][half][c] =
              exists ? g_weight[place + (first + c) * params.weight_stride[0]] : element::to_element<Element>(0.0f);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int32_t fragment = begin + i * params.warps;
      if (fragment >= fragments) break;
      store_fragment<Traits>(s_weights + (fragment * 32 + lane) * 16, r_weight[i]);
    }
  }
}

#endif

}  // namespace convt::mma_sm90a
