// The upsample engine: which results a CTA owns, their products, and their store. 64 positions of source rows are the
// first operand of a product, in registers; the weights of a quad of phases are the second.
#pragma once

#include "element/arithmetic.cuh"
#include "element/registers.cuh"
#include "epilogue/finish.cuh"
#include "epilogue/store_neighbours.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "upsample_sm90a/params.h"

namespace convt::upsample_sm90a {

// Three warpgroups multiply and store, each every third position row; another one loads.
inline constexpr int kWarps = 12;
inline constexpr int kConsumerThreads = 32 * kWarps;
inline constexpr int kLoadThreads = 128;
static_assert(kConsumerThreads + kLoadThreads == kUpsampleThreads);

template <DataType kDataTypeValue>
struct Shape {
  using Element = typename element::ElementOf<kDataTypeValue>::type;
  static constexpr DataType kDataType = kDataTypeValue;
  static constexpr int kElement = sizeof(Element);
  static constexpr int kVector = 16 / kElement;                      // elements
  static constexpr int kPitch = kUpsamplePitch[kElement / 4];        // of a channel in a slot
  static constexpr int kSteps = kUpsampleSteps[kElement / 4];        // of K, of a tap row
  static constexpr int kOperandBytes = kSteps * kUpsampleStepBytes;  // of a quad and a tap row
};

// The weights that a CTA holds.
struct Operand {
  int32_t phase_h, octet, channel;
  int32_t tap_h, taps_h;  // the first tap along H, and how many there are, a stride apart
  int32_t source_h;       // source row of tap tap_h, from a position row
  int32_t source_w;       // the first quad's earlier source column, from a position
  int32_t split;          // columns from that to the second quad's
};

__device__ __forceinline__ Operand operand_of(const UpsampleLayout& params, int32_t number) {
  Operand operand;
  number = params.stride_h(number, &operand.phase_h);
  operand.channel = params.octets(number, &operand.octet) * kUpsampleChannels;
  operand.source_h = params.stride_h(operand.phase_h + params.h.padding, &operand.tap_h);
  const int32_t left = params.h.kernel - operand.tap_h;
  operand.taps_h = left <= 0 ? 0 : left > params.h.stride ? 2 : 1;
  const int32_t column = 8 * operand.octet + params.w.padding;
  operand.source_w = column / params.w.stride - 1;
  operand.split = (column + 4) / params.w.stride - 1 - operand.source_w;
  return operand;
}

struct Tile {
  int32_t image, column;  // column: of the first position
  int32_t row, rows;      // positions
};

__device__ __forceinline__ Tile tile_of(const UpsampleLayout& params, int32_t number) {
  Tile tile;
  number = params.column_tiles(number, &tile.column);
  tile.column *= kUpsamplePositions;
  tile.image = params.row_tiles(number, &tile.row);
  tile.row *= params.tile_rows;
  tile.rows = min(params.tile_rows, params.rows - tile.row);
  return tile;
}

// A source row is number n of all that a CTA brings: the slot that it lies in, and how often that was filled before.
struct Place {
  int32_t slot;
  uint32_t parity;
};

__device__ __forceinline__ Place place_of(const UpsampleLayout& params, int32_t number) {
  Place place;
  place.parity = params.slots(number, &place.slot) & 1;
  return place;
}

#ifdef CONVT_HAS_WGMMA

// Of position 16 * warp + lane / 4 + 8 * h, quad q, column 8 * j + 2 * (lane % 4) + i: accumulator [q][4 * j + 2 * h +
// i].
using Accumulators = float[2][kUpsampleColumns / 2];

// What a thread reads of a source row for a quad: of its positions and channels, the columns of both taps along W.
template <typename S>
__device__ __forceinline__ void load_fragments(uint32_t (&fragments)[S::kSteps][4], uint32_t s_row, int32_t column) {
  constexpr int kChannelBytes = S::kPitch * S::kElement;
  const bool odd = column % 2 == 1;  // half precision reads words of two columns
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t s_mine = s_row + lane % 4 * kChannelBytes + (S::kElement == 4 ? column : column / 2 * 2) * S::kElement;
#pragma unroll
  for (int step = 0; step < kUpsampleChannels / 8; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t s_word = s_mine + (8 * step + i / 2 * 4) * kChannelBytes + i % 2 * 8 * S::kElement;
      const uint32_t first = ptx::load_shared(s_word), second = ptx::load_shared(s_word + 4);
      if constexpr (S::kElement == 4) {
        ptx::write_fragment_tf32(fragments[step][i], second);
        ptx::write_fragment_tf32(fragments[S::kSteps / 2 + step][i], first);
      } else {
        ptx::write_fragment(fragments[step][i], __byte_perm(first, second, odd ? 0x5432 : 0x3210));
      }
    }
  }
}

// All products of a position row. s_rows: the source rows of the taps along H. Other warpgroups multiply or store while
// this one waits.
template <typename S>
__device__ __forceinline__ void multiply_rows(Accumulators& acc, const uint32_t (&s_rows)[2], int32_t column,
                                              const Operand& operand, const ptx::MatrixDescriptor& weights) {
  element::clear(acc);
#pragma unroll 1
  for (int th = 0; th < operand.taps_h; ++th) {
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      uint32_t fragments[S::kSteps][4];
      load_fragments<S>(fragments, th == 0 ? s_rows[0] : s_rows[1], column + quad * operand.split);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < S::kSteps; ++step) {
        ptx::wgmma<typename S::Element>(
            acc[quad], fragments[step],
            weights.moved(((2 * quad + th) * S::kOperandBytes + 16 * quad + step * kUpsampleStepBytes) / 16), true);
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      element::keep(fragments);
    }
  }
}

// Stores a position row: whole sectors, straight from registers. g_row: the result's row at the operand's first channel
// and the thread's first position.
template <typename S>
__device__ __forceinline__ void store_row(const Params& params, const Accumulators& acc, typename S::Element* g_row,
                                          int32_t channels, int32_t columns, const float* s_bias) {
  using Element = typename S::Element;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32, t = lane % 4;
  constexpr int kStores = S::kElement == 4 ? 2 : 1;
  const int64_t step = 4 * params.result_stride[1];
#pragma unroll
  for (int store = 0; store < kStores; ++store) {
    // TF32: two lanes store an octet of the even one's channel, then of the odd one's.
    const bool second = kStores == 2 && (t & 1) != store;
    const int32_t first = kStores == 1 ? t : store == 0 ? t & 2 : t | 1;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t column = 8 * h * params.w.stride + (second ? 4 : 0);
      if (column >= columns) continue;
      Element* g_octet = g_row + first * params.result_stride[1] + column;
#pragma unroll
      for (int block = 0; block < kUpsampleChannels / 4; ++block, g_octet += step) {
        const int32_t channel = 4 * block + first;
        if (channel >= channels) continue;
        const float bias = s_bias[channel];
        Element elements[S::kVector];
#pragma unroll
        for (int e = 0; e < S::kVector; ++e) {
          const int at = 4 * (2 * block + e / 2 % 2) + 2 * h + e % 2;
          const float sum = second ? acc[1][at] : acc[e / 4][at];
          elements[e] = element::to_element<Element>(epilogue::finish(sum, bias));
        }
        epilogue::stream_vector(g_octet, elements);
      }
    }
  }
}

#endif

}  // namespace convt::upsample_sm90a
