// Gradient of the input: global memory -> shared memory. Bulk copies load unmodified rows of grad_output. Weights are
// stored as fragments. Tables contain the offsets of the elements of K and of positions.
#pragma once

#include "mma_sm90a/grad_input_layout.h"
#include "mma_sm90a/traits.cuh"
#include "ptx/mbarrier_sm90.cuh"
#include "ptx/shared.cuh"
#include "tiling/tile.cuh"

namespace convt::mma_sm90a {

#ifdef CONVT_HAS_WGMMA

using tiling::grad_input_tile;
using tiling::GradInputTile;
using tiling::taps_outside;

// Contiguous channels in the rows of a lane's fragments, for a result in channels_last.
template <typename Traits>
__device__ constexpr int32_t channel_vector() {
  return Traits::kVector < 2 * Traits::kColumnTiles ? Traits::kVector : 2 * Traits::kColumnTiles;
}

// Row of grad_output that the first tap of a tile's first position reads.
__device__ __forceinline__ int32_t first_row(const GradInputParams& params, const GradInputTile& tile) {
  return tile.h * params.h.stride - params.h.padding;
}

// Address of the first tap of a tile's first position in a stage's first channel. It may be outside the tensor.
template <typename Element>
__device__ __forceinline__ const Element* stage_source(const GradInputParams& params, const GradInputTile& tile,
                                                       int32_t group, int32_t chunk) {
  return static_cast<const Element*>(params.source) + tile.image * params.source_stride[0] +
         (group * params.group_co + chunk * params.chunk_co) * params.source_stride[1] +
         int64_t{first_row(params, tile)} * params.source_stride[2] +
         int64_t{tile.w * params.w.stride - params.w.padding} * params.column_pitch;
}

// Offset of an address in its 16-byte vector. The copy in a stage has the same offset.
__device__ __forceinline__ uint32_t address_shift(const void* g_source) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(g_source)) & 15;
}

__device__ __forceinline__ void copy_element(uint32_t s_to, const float* g_from) {
  ptx::store_shared(s_to, __float_as_uint(*g_from));
}
template <typename Half>
__device__ __forceinline__ void copy_element(uint32_t s_to, const Half* g_from) {
  ptx::store_shared_16(s_to, *reinterpret_cast<const uint16_t*>(g_from));
}

template <typename Element>
__device__ __forceinline__ void copy_elements(uint32_t s_to, const Element* g_from, int32_t elements) {
#pragma unroll 1
  for (int32_t i = 0; i < elements; ++i) copy_element(s_to + i * static_cast<uint32_t>(sizeof(Element)), g_from + i);
  ptx::fence_proxy_async();
}

// Copies a row with one lane, in whole vectors, starting at the vector that contains the first element. Reads no byte
// past the end of the tensor. Returns the bytes that the bulk copy will complete.
template <typename Element>
__device__ __forceinline__ uint32_t copy_row(const GradInputParams& params, const Element* g_begin, uint32_t s_begin,
                                             int32_t elements, uint32_t barrier) {
  constexpr uint32_t kBytes = sizeof(Element);
  const uint32_t head = address_shift(g_begin);
  const auto* g_vector = reinterpret_cast<const unsigned char*>(g_begin) - head;
  const uint32_t s_vector = s_begin - head;
  uint32_t bytes = (elements * kBytes + head + 15) & ~15u;
  const int64_t rest = static_cast<const unsigned char*>(params.source_end) - g_vector;
  if (bytes > rest) {  // the tensor's last row
    bytes -= 16;
    copy_elements(s_vector + bytes, reinterpret_cast<const Element*>(g_vector + bytes),
                  static_cast<int32_t>(rest - bytes) / static_cast<int32_t>(kBytes));
  }
  if (bytes > 0) ptx::bulk_copy(s_vector, g_vector, bytes, barrier);
  return bytes;
}

// Index of a producer thread. Adjacent indices are in different warps, so that a few copies are distributed over all
// producer warps.
__device__ __forceinline__ int32_t loading_thread(const GradInputParams& params) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  return thread % 32 * params.loaders + thread / 32 - params.warps;
}

// Row of grad_output in a slot, relative to the stage's first row, and its offset in the stage.
__device__ __forceinline__ int32_t row_of_slot(const GradInputParams& params, int32_t slot, int32_t* place) {
  if (!params.apart) {
    *place = slot * params.slot_pitch;
    return slot * params.row_step;
  }
  int32_t k;
  const int32_t q = params.by_kernel_h(slot, &k);
  *place = q * params.position_pitch + k * params.tap_pitch;
  return q * params.h.stride + k * params.h.dilation;
}

// Called by producer warps. Copies the existing rows of a stage's channels. A lane copies one row, or a window of
// contiguous rows (`joined`). Returns the bytes that this lane's bulk copies will complete.
template <typename Element>
__device__ __forceinline__ uint32_t load_stage(const GradInputParams& params, const GradInputTile& tile, int32_t group,
                                               int32_t chunk, uint32_t s_stage, uint32_t barrier) {
  constexpr int32_t kBytes = sizeof(Element);
  const Element* g_source = stage_source<Element>(params, tile, group, chunk);
  const uint32_t s_source = s_stage + address_shift(g_source);
  const int32_t row_0 = first_row(params, tile);
  const int32_t column_0 = tile.w * params.w.stride - params.w.padding;
  const int32_t begin = max(0, -column_0), end = min(params.columns, params.w.out - column_0);
  if (begin >= end) return 0;
  const int32_t place_begin = begin * params.column_pitch, planes = params.interleaved ? 1 : params.chunk_co;
  uint32_t total = 0;
#pragma unroll 1
  for (int32_t item = loading_thread(params); item < planes * params.by_copies.value; item += 32 * params.loaders) {
    int32_t slot;
    const int32_t channel = params.by_copies(item, &slot);
    int32_t place;
    int32_t row = row_of_slot(params, slot, &place);
    int32_t elements = (end - begin - 1) * params.column_pitch + (params.interleaved ? params.chunk_co : 1);
    if (params.joined) {
      const int32_t first = max(0, -row_0), last = min(params.slots, params.h.out - row_0);
      if (first >= last) break;
      row = first;
      place = first * params.slot_pitch;
      elements += (last - first - 1) * params.slot_pitch;
    }
    if (row_0 + row < 0 || row_0 + row >= params.h.out) continue;
    total +=
        copy_row(params, g_source + channel * params.source_stride[1] + row * params.source_stride[2] + place_begin,
                 s_source + (channel * params.channel_pitch + place + place_begin) * kBytes, elements, barrier);
  }
  return total;
}

// Mask bit of elements past the end of K. Positions set it only if K is not a multiple of the step.
inline constexpr uint32_t kNoTap = 1u << 31;

// Called by consumer warps. Makes tables: for each element of K of a stage its offset in the stage, its tap and the
// offset of its weights; for each position its offset; for each row and column of an image the taps outside the image.
template <typename Traits>
__device__ __forceinline__ void make_tables(const GradInputParams& params, unsigned char* s_bytes) {
  constexpr int kElements = Traits::kPlaneChannels;
  constexpr auto kBytes = static_cast<int32_t>(sizeof(typename Traits::Element));
  auto* s_offsets = reinterpret_cast<uint32_t*>(s_bytes + params.offset_begin);
  auto* s_masks = reinterpret_cast<uint32_t*>(s_bytes + params.mask_begin);
  auto* s_places = reinterpret_cast<int32_t*>(s_bytes + params.place_begin);
  auto* s_positions = reinterpret_cast<int2*>(s_bytes + params.position_begin);
  auto* s_outside = reinterpret_cast<uint32_t*>(s_bytes + params.outside_begin);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t threads = 32 * params.warps;
#pragma unroll 1
  for (int32_t index = thread; index < params.steps * 4 * kElements; index += threads) {
    // Order of K: [step][element of a lane][lane]. Order of the tables: [step][lane][element].
    const int32_t of_step = index % (4 * kElements);
    const int32_t to = index - of_step + of_step % 4 * kElements + of_step / 4;
    const GradInputTap tap = grad_input_tap(params, index);
    const bool exists = index < params.depth;
    s_offsets[to] = exists ? static_cast<uint32_t>(grad_input_place(params, tap) * kBytes) : 0;
    s_masks[to] = exists ? 1u << tap.k_w | 1u << (16 + tap.k_h) : kNoTap;
    s_places[to] = exists ? static_cast<int32_t>(tap.co * params.weight_stride[1] + tap.k_h * params.weight_stride[2] +
                                                 tap.k_w * params.weight_stride[3])
                          : -1;
  }
#pragma unroll 1
  for (int32_t index = thread; index < params.position_units * Traits::kUnitPositions; index += threads) {
    int32_t row, column;
    grad_input_position(params, index, &row, &column);
    s_positions[index] = index < params.positions
                             ? make_int2(grad_input_position_place(params, row, column) * kBytes, row << 16 | column)
                             : make_int2(0, kNoGradInputPosition);
  }
#pragma unroll 1
  for (int32_t index = thread; index < params.h.in + params.w.in; index += threads) {
    s_outside[index] =
        index < params.h.in ? taps_outside(params.h, index) << 16 : taps_outside(params.w, index - params.h.in);
  }
}

// Channel of a row of a fragment. In channels_last, the rows of a lane that one vector store covers are contiguous
// channels.
template <typename Traits>
__device__ __forceinline__ int32_t fragment_channel(const GradInputParams& params, int32_t row_tile, int32_t half,
                                                    int32_t row) {
  if (!params.result_channels_last) return row_tile * kMmaColumns + half * 8 + row;
  const int32_t tile = row_tile % Traits::kColumnTiles, number = 2 * tile + half, vector = channel_vector<Traits>();
  return (row_tile - tile) * kMmaColumns + (number / vector * 8 + row) * vector + number % vector;
}

// Called by one thread of each consumer warp. Copies the group's weights unmodified into a slot.
template <typename Element>
__device__ __forceinline__ void load_raw_weights(const GradInputParams& params, const Element* g_weight,
                                                 uint32_t s_slot, uint32_t barrier) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32, bytes = params.raw_bytes * params.group_ci;
  const bool whole = params.raw_pitch == params.weight_stride[0];  // channels are contiguous in the slot too
  if (warp == 0) ptx::mbarrier_expect(barrier, bytes);
  if (warp == 0 && whole) ptx::bulk_copy(s_slot, g_weight, bytes, barrier);
#pragma unroll 1
  for (int32_t ci = warp; ci < params.group_ci && !whole; ci += params.warps) {
    ptx::bulk_copy(s_slot + ci * params.raw_pitch * static_cast<uint32_t>(sizeof(Element)),
                   g_weight + ci * params.weight_stride[0], params.raw_bytes, barrier);
  }
}

// Makes fragments of all weights of the group: [chunk][step][row tile][lane][16 bytes of operand A]. The weights are
// read from global memory or from a slot, with `pitch` elements between channels of the result.
template <typename Traits>
__device__ __forceinline__ void make_fragments(const GradInputParams& params, const typename Traits::Element* weight,
                                               int64_t pitch, const int32_t* s_places, unsigned char* s_weights) {
  using Element = typename Traits::Element;
  constexpr int kElements = Traits::kPlaneChannels;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, row = lane / 4;
  const int32_t fragments = params.num_chunks * params.steps * params.row_tiles;
  constexpr int kBatch = 4;  // all loads before the first store
#pragma unroll 1
  for (int32_t begin = static_cast<int32_t>(threadIdx.x) / 32; begin < fragments; begin += kBatch * params.warps) {
    Element r_weight[kBatch][2][kElements];  // rows g and g + 8
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int32_t fragment = begin + i * params.warps;
      int32_t row_tile, step;
      const int32_t chunk = params.by_steps(params.by_row_tiles(fragment, &row_tile), &step);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t ci = fragment_channel<Traits>(params, row_tile, half, row);
        const Element* channel = weight + ci * pitch + chunk * params.chunk_co * params.weight_stride[1];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const bool exists = fragment < fragments && ci < params.group_ci;
          const int32_t place = exists ? s_places[(step * 4 + lane % 4) * kElements + e] : -1;
          r_weight[i][half][e] = place >= 0 ? channel[place] : element::to_element<Element>(0.0f);
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
