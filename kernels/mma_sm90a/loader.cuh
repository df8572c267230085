// Global memory -> shared memory: source tiles, first copied unchanged, then converted to the operand; weights as
// fragments. Elements outside the source are zero.
#pragma once

#include "mma_sm90a/mainloop.cuh"
#include "mma_sm90a/tile.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

// Copies the chunk's channels of the tile's rows and columns unchanged.
template <typename Traits>
__device__ __forceinline__ void load_raw(const Params& params, const Pass& pass, const Tile& tile, int32_t chunk,
                                         uint32_t s_raw) {
  using Element = typename Traits::Element;
  const int32_t first_ci = chunk * params.chunk_ci;
  const int32_t channels = min(params.chunk_ci, params.group_ci - first_ci);
  const int32_t first_row = tile.q_h + params.h.least_offset, first_column = tile.q_w + params.column_offset;
  const auto* g_tile = static_cast<const Element*>(params.source) + tile.image * params.source_stride[0] +
                       (int64_t{pass.group} * params.group_ci + first_ci) * params.source_stride[1];
  const int32_t items = (channels + kMmaLoadChannels - 1) / kMmaLoadChannels * params.places;
  const uint32_t channel_bytes = params.raw_channel * static_cast<uint32_t>(sizeof(Element));
#pragma unroll 1
  for (int32_t item = threadIdx.x; item < items; item += params.loaders) {
    int32_t place, vector;
    const int32_t first = params.by_places(item, &place) * kMmaLoadChannels;
    const int32_t row = params.by_vectors(place, &vector) + first_row;
    const int32_t column = vector * params.vector + first_column;
    const bool inside = static_cast<uint32_t>(row) < static_cast<uint32_t>(params.h.in) &&
                        static_cast<uint32_t>(column) < static_cast<uint32_t>(params.w.in);
    const Element* g_from = g_tile;
    if (inside) {
      g_from += first * params.source_stride[1] + row * params.source_stride[2] + column * params.source_stride[3];
    }
    uint32_t s_to[kMmaLoadChannels];
    const void* g_channel[kMmaLoadChannels];
    bool exists[kMmaLoadChannels];
#pragma unroll
    for (int c = 0; c < kMmaLoadChannels; ++c) {
      exists[c] = inside && first + c < channels;
      s_to[c] = s_raw + (first + c) * channel_bytes + place * params.vector * static_cast<uint32_t>(sizeof(Element));
      g_channel[c] = exists[c] ? g_from + c * params.source_stride[1] : g_tile;
    }
    if (params.vector > 1) {
      ptx::cp_async_or_zero_4(s_to, g_channel, exists);
      continue;
    }
#pragma unroll
    for (int c = 0; c < kMmaLoadChannels; ++c) {
      if constexpr (sizeof(Element) == 4) {
        ptx::cp_async_or_zero<4>(s_to[c], g_channel[c], exists[c]);
      } else {
        ptx::store_shared_16(s_to[c], exists[c] ? __ldg(static_cast<const unsigned short*>(g_channel[c])) : 0);
      }
    }
  }
}

// Raw channels -> planes with 8 bytes of channels per position. Rounds float32 to TF32. Missing channels are zero.
template <typename Traits>
__device__ __forceinline__ void make_operand(const Params& params, int32_t chunk, uint32_t s_raw, uint32_t s_operand) {
  using Element = typename Traits::Element;
  constexpr int kChannels = Traits::kPlaneChannels,
                kWords = sizeof(Element);  // kWords: per quad, four positions of a channel
  const int32_t channels = min(params.chunk_ci, params.group_ci - chunk * params.chunk_ci);
  const int32_t items = params.chunk_steps * 4 * params.by_plane_quads.value;
  const uint32_t raw_channel = params.raw_channel * static_cast<uint32_t>(sizeof(Element));
  constexpr int kBatch = 2;  // all loads before the first store
#pragma unroll 1
  for (int32_t begin = threadIdx.x; begin < items; begin += kBatch * params.loaders) {
    uint32_t r_channel[kBatch][kChannels][kWords] = {}, s_to[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      int32_t quad;
      const int32_t plane = params.by_plane_quads(begin + i * params.loaders, &quad);
      const int32_t first = plane * kChannels;
      s_to[i] = s_operand + (plane * params.plane + quad * 4) * 8;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        if (first + c < channels) {
          ptx::load_shared(r_channel[i][c],
                           s_raw + (first + c) * raw_channel + quad * 4 * static_cast<uint32_t>(sizeof(Element)));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (begin + i * params.loaders >= items) break;
      uint32_t r_planes[2][4];  // positions 0 and 1; positions 2 and 3
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        if constexpr (sizeof(Element) == 4) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float value = __uint_as_float(r_channel[i][k % 2][2 * pair + k / 2]);
            r_planes[pair][k] = __float_as_uint(ptx::round_tf32(value));
          }
        } else {
#pragma unroll
          for (int k = 0; k < 4; ++k) {  // channels 2 (k % 2) and the next of position k / 2
            r_planes[pair][k] =
                __byte_perm(r_channel[i][k % 2 * 2][pair], r_channel[i][k % 2 * 2 + 1][pair], k < 2 ? 0x5410 : 0x7632);
          }
        }
      }
      ptx::store_shared(s_to[i], r_planes[0]);
      ptx::store_shared(s_to[i] + 16, r_planes[1]);
    }
  }
}

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

// Loads all weights of the pass: [chunk][tap][step of K][column tile][lane][16 bytes of operand A]. s_places contains
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
      int32_t column_tile, step, tap;
      const int32_t tap_step = params.by_column_tiles(fragment, &column_tile);
      const int32_t chunk_tap = params.by_chunk_steps(tap_step, &step);
      const int32_t chunk = params.by_taps(chunk_tap, &tap);
      const int32_t first = (4 * (chunk * params.chunk_steps + step) + lane % 4) * kChannels;
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
