// Which results a tile of the strided engine owns, what a thread holds of them, and what it reads of the source.
#pragma once

#include "element/registers.cuh"
#include "ptx/shared.cuh"
#include "rows_sm90a/tile.cuh"

namespace convt::rows_sm90a::strided {

inline constexpr int kConsumerThreads = 128 * kStridedConsumers;

template <StridedShape kOf>
struct Shape : Traits<kOf> {
  static constexpr int kKernel = kOf.kernel;
  static constexpr bool kAlternate = kOf.alternate;
  static constexpr bool kOutput = kOf.output();
  static constexpr int kStep = kOf.step();
  static constexpr int kScale = kOutput ? 2 : 1;  // result columns (rows) from a position to the next
  static constexpr bool kAllPhases = kOf.all_phases();
  static constexpr int kPhases = kOf.phases();  // H phase * 2 + W phase
  static constexpr int kRows = kOf.rows();
  static constexpr int kGroups = kOutput ? 1 : 2;  // of products for a row, issued together
  static constexpr int kFragments = kOutput && !kAllPhases ? 4 : 3;  // of a group
  static constexpr int kWindow = 4 * kStep + 2;  // columns of the source that a thread has, from -1 on
  static constexpr bool kLeft = !kAllPhases;  // the first and the last of them are read
  static constexpr bool kRight = kOutput || kKernel == 4;
  static constexpr int kSlotRows = kOf.slot_rows();
  static constexpr int kStageSlots = kRows / kSlotRows;  // of weights
  static constexpr int kSlotBytes = kOf.slot_bytes();
  // Lanes 0 to 7 read shared memory at a time, of two quads. Where quads are 8 columns of float32 apart, neighbours
  // would meet in the same banks: these lanes then have every other one.
  static constexpr bool kPermuted = !kOutput && kOf.element() == 4;
};

struct Tile : Place {
  int32_t column, row;  // the first of its positions
  int32_t begin;        // its first quad in the strip
};

__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile{place_of(params, number)};
  int32_t column;
  tile.image *= params.tile_images;
  tile.begin = tile.inner * params.tile_quads;
  tile.row = params.by_row(tile.begin, &column);
  tile.column = tile.outer * params.strip_width;
  return tile;
}

// The first row of the source that a position of this row reads.
template <typename Shape>
__device__ __forceinline__ int32_t source_row(const Tile& tile, int32_t row) {
  return row * Shape::kStep + tile.phase + Shape::kShape.first_row();
}

// The stages of a tile that a CTA multiplies.
struct Chunks {
  int32_t begin, end;
};
__device__ __forceinline__ Chunks chunks_of_split(const Params& params, int32_t split) {
  return {params.num_chunks * split / params.splits, params.num_chunks * (split + 1) / params.splits};
}

// A thread's accumulators. Block b, number 4 * j + 2 * h + i of phase p is channel 8 * j + 2 * (lane % 4) + i of the
// lane's position b + 2 * h: what a tap reads for the second block, its neighbour reads for the first.
template <typename Shape>
struct Accumulators {
  float r[Shape::kPhases][2][Shape::kN / 2];

  __device__ __forceinline__ float of_position(int phase, int position, int i) const {
    return r[phase][position % 2][i + 2 * (position / 2)];
  }
};

// The four neighbouring positions of a thread.
struct Quad {
  int64_t result;   // offset of the first in the result's first channel, negative where they do not exist
  uint32_t source;  // bytes from the stage's begin to its first column in the first row of the thread's first channel
  uint32_t rows;  // a bit for each row of the source that exists
  bool has_left, has_right;  // columns before and after the thread's own
};

template <typename Shape>
__device__ __forceinline__ Quad quad_of_thread(const Params& params, const Tile& tile) {
  constexpr int kChannelStep = Shape::kElement == 4 ? 1 : 2;
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), warp = static_cast<int32_t>(threadIdx.x / 32);
  int32_t of_warp = lane / 4;
  if constexpr (Shape::kPermuted) of_warp = (of_warp & 4) | (of_warp & 1) << 1 | (of_warp >> 1 & 1);
  const int32_t of_tile = 8 * (Shape::kAlternate ? warp % 4 : warp) + of_warp;
  int32_t place, column;
  int32_t image = params.by_strip(tile.begin + of_tile, &place);
  int32_t row = params.by_row(place, &column);
  const int32_t x = tile.column + 4 * column;
  Quad quad;
  quad.result = (tile.image + image) * params.result_stride[0] +
                (row * Shape::kScale + tile.phase) * params.result_stride[2] + x * Shape::kScale;
  const bool exists = of_tile < params.tile_quads && image < params.tile_images && tile.image + image < params.batch &&
                      x < params.width;
  if (!exists) {
    quad.result = -1;
    image = column = 0;
    row = tile.row;
  }
  const int32_t first_row = source_row<Shape>(tile, row);
  const int32_t of_box = params.whole_images ? first_row : first_row - source_row<Shape>(tile, tile.row);
  quad.source = image * params.image_bytes + of_box * params.row_bytes +
                lane % 4 * kChannelStep * params.channel_bytes +
                (params.box_lead + 4 * Shape::kStep * column) * Shape::kElement;
  quad.rows = 0;
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    quad.rows |= exists && first_row + i >= 0 && first_row + i < params.source_h ? 1u << i : 0;
  }
  quad.has_left = exists && x > 0;
  quad.has_right = exists && x + 4 < params.width;
  return quad;
}

#ifdef CONVT_HAS_WGMMA

// [half of a step of K][column]: a channel, or two neighbours in half precision.
template <typename Shape>
using Words = uint32_t[2][Shape::kWindow];

template <typename Shape>
using Fragments = uint32_t[Shape::kFragments][4];

// The thread's own columns of a row, from `s_own` on, and the one before and the one after them, or zeros where there
// are none.
template <typename Shape>
__device__ __forceinline__ void load_words(Words<Shape>& words, uint32_t s_own, const Quad& quad,
                                           uint32_t channel_bytes) {
  constexpr int kOwn = 4 * Shape::kStep;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (Shape::kElement == 4) {
      const uint32_t s_channel = s_own + 4 * half * channel_bytes;
#pragma unroll
      for (int i = 0; i < kOwn; i += 4) {
        uint32_t four[4];
        ptx::load_shared(four, s_channel + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k) words[half][1 + i + k] = four[k];
      }
      if constexpr (Shape::kLeft) words[half][0] = ptx::load_shared_or_zero(s_channel - 4, quad.has_left);
      if constexpr (Shape::kRight) {
        words[half][1 + kOwn] = ptx::load_shared_or_zero(s_channel + 4 * kOwn, quad.has_right);
      }
    } else {
      uint32_t own[2][kOwn / 2], left[2], right[2];  // pairs of columns
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const uint32_t s_channel = s_own + (8 * half + c) * channel_bytes;
        ptx::load_shared(own[c], s_channel);
        if constexpr (Shape::kLeft) left[c] = ptx::load_shared_or_zero(s_channel - 4, quad.has_left);
        if constexpr (Shape::kRight) right[c] = ptx::load_shared_or_zero(s_channel + 2 * kOwn, quad.has_right);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        words[half][1 + i] = __byte_perm(own[0][i / 2], own[1][i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
      }
      if constexpr (Shape::kLeft) words[half][0] = __byte_perm(left[0], left[1], 0x7632);
      if constexpr (Shape::kRight) words[half][1 + kOwn] = __byte_perm(right[0], right[1], 0x5410);
    }
  }
}

// Where fragment number `f` of a group has its first position's column in the window, or -1. Its second position is two
// further. Where a tap reads one fragment for the first block of positions, it reads the next one for the second.
template <typename Shape>
__device__ constexpr int fragment_column(int group, int f) {
  if constexpr (Shape::kOutput) return f + (Shape::kAllPhases ? 1 : 0);
  return group + 2 * f < Shape::kKernel + 2 ? group + 2 * f : -1;  // even or odd columns
}

template <typename Shape>
__device__ __forceinline__ void to_fragments(Fragments<Shape>& fragments, const Words<Shape>& words, int group,
                                             uint32_t zero) {
#pragma unroll
  for (int f = 0; f < Shape::kFragments; ++f) {
    const int column = fragment_column<Shape>(group, f);
    if (column < 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      element::write_fragment<typename Shape::Element>(fragments[f][i], words[i / 2][column + i % 2 * 2 * Shape::kStep],
                                                       zero);
    }
  }
}

#endif

}  // namespace convt::rows_sm90a::strided
