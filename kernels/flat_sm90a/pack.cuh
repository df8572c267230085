// Source -> operand planes in global memory: [position][16 bytes]. A plane contains 4 TF32 or 8 half-precision channels
// of each position, and zeros between rows and images (flat_sm90a/layout.h). If many results read each source element,
// one pass over the source costs less than transposing it in every tile.
#pragma once

#include "element/operand.cuh"
#include "flat_sm90a/layout.h"
#include "flat_sm90a/params.h"
#include "pack/weights_sm90a/pack_weights.cuh"

namespace convt::flat_sm90a {

#ifdef CONVT_HAS_WGMMA

// Loads the 16 bytes of plane `plane` for a source position. `g_element` points to its channel 0.
template <typename Traits>
__device__ __forceinline__ uint4 load_channels(const PackParams& params, const typename Traits::Element* g_element,
                                               int32_t plane) {
  using Element = typename Traits::Element;
  const int32_t first = plane * Traits::kChannels;
  Element r[Traits::kChannels];
  if (params.channel_vectors && first + Traits::kChannels <= params.k_channels) {
    const uint4 words = *reinterpret_cast<const uint4*>(g_element + first);
    memcpy(r, &words, 16);
  } else {
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) {
      r[c] = first + c < params.k_channels ? g_element[(first + c) * params.source_stride[1]]
                                           : element::to_element<Element>(0.0f);
    }
  }
  if constexpr (Traits::kFloat32) {
#pragma unroll
    for (int c = 0; c < Traits::kChannels; ++c) r[c] = ptx::round_tf32(r[c]);
  }
  uint4 words;
  memcpy(&words, r, 16);
  return words;
}

// Packs a CTA's share: some positions of some planes, for all residues. Adjacent threads pack adjacent positions. If
// channels are contiguous, 8 adjacent threads pack 8 planes of one position. Each thread packs planes_each planes.
template <typename Traits>
__device__ __forceinline__ void pack_source(const PackParams& params, int32_t block) {
  using Element = typename Traits::Element;
  int32_t plane_block, group_block;
  const int32_t position_block = params.by_plane_blocks(block, &plane_block);
  const int32_t group = params.by_group_blocks(plane_block, &group_block);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t side_by_side = 1 << params.threads_of_position_log2;
  const int32_t index = (position_block * kFlatPackThreads + thread) >> params.threads_of_position_log2;
  if (index >= params.plane_positions) return;
  int32_t row = 0, column = 0, image = params.batch;
  if (index >= params.lead) image = params.by_image_rows(params.by_pitch(index - params.lead, &column), &row);

  const int32_t first_plane = group_block * params.planes_each * side_by_side + (thread & (side_by_side - 1));
  const int32_t end = min(first_plane + params.planes_each * side_by_side, params.planes);
  const auto* g_image = static_cast<const Element*>(params.source) + image * params.source_stride[0] +
                        int64_t{group} * params.k_channels * params.source_stride[1];
  const int32_t sub_tiles = params.sub_h * params.sub_w;
  for (int32_t plane = first_plane; plane < end; plane += side_by_side) {
    auto* g_packed = static_cast<uint4*>(params.packed) +
                     (int64_t{group} * params.planes + plane) * sub_tiles * params.plane_positions + index;
    for (int32_t sub_h = 0; sub_h < params.sub_h; ++sub_h) {
      const int32_t h = row * params.step_h + params.residue_h[sub_h];
      for (int32_t sub_w = 0; sub_w < params.sub_w; ++sub_w) {
        const int32_t w = column * params.step_w + params.residue_w[sub_w];
        uint4 words{0, 0, 0, 0};
        if (image < params.batch && h < params.source_h && w < params.source_w) {
          words =
              load_channels<Traits>(params, g_image + h * params.source_stride[2] + w * params.source_stride[3], plane);
        }
        *g_packed = words;
        g_packed += params.plane_positions;
      }
    }
  }
}

#endif

// Packs both operands in one launch: first the CTAs of the weight, then those of the source. Packing the weight does
// not lower the occupancy of five CTAs per SM.
template <typename Traits>
__global__ void __launch_bounds__(kFlatPackThreads, 5)
    pack_operands(const __grid_constant__ PackParams source, const __grid_constant__ pack::Params weights,
                  int32_t first_source_block) {
#ifdef CONVT_HAS_WGMMA  // only a Hopper kernel reads the planes; targets before 8.0 cannot round to TF32
  const auto block = static_cast<int32_t>(blockIdx.x);
  if (block < first_source_block) {
    static_assert(kFlatPackThreads == pack::kPackThreads);
    pack::pack_taps<Traits>(weights, block);
  } else {
    pack_source<Traits>(source, block - first_source_block);
  }
#endif
}

}  // namespace convt::flat_sm90a
