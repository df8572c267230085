// Tiles of `strided`: coordinates, accumulators and source words of a thread.
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
  static constexpr int kScale = kOutput ? 2 : 1;  // result columns (and rows) per position
  static constexpr bool kAllPhases = kOf.all_phases();
  static constexpr int kPhases = kOf.phases();  // H phase * 2 + W phase
  static constexpr int kRows = kOf.rows();
  static constexpr int kGroups = kOutput ? 1 : 2;  // commit groups of products per source row
  static constexpr int kFragments = kOutput && !kAllPhases ? 4 : 3;  // per group
  static constexpr int kWindow = 4 * kStep + 2;  // source columns per thread, from column -1 of its quad on
  static constexpr bool kLeft = !kAllPhases;  // the first of these columns is read; kRight: the last
  static constexpr bool kRight = kOutput || kKernel == 4;
  static constexpr int kSlotRows = kOf.slot_rows();
  static constexpr int kStageSlots = kRows / kSlotRows;  // weight slots per stage
  static constexpr int kSlotBytes = kOf.slot_bytes();
  // Eight lanes read shared memory at a time, for two quads. Adjacent quads conflict in banks if a quad covers 8
  // columns of float32. These lanes then have quads q and q + 2.
  static constexpr bool kPermuted = !kOutput && kOf.element() == 4;
};

struct Tile : Place {
  int32_t column, row;  // first position
  int32_t begin;        // index of its first quad in the strip
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

// First source row that positions of a row read.
template <typename Shape>
__device__ __forceinline__ int32_t source_row(const Tile& tile, int32_t row) {
  return row * Shape::kStep + tile.phase + Shape::kShape.first_row();
}

// Stages of a tile that a CTA multiplies.
struct Chunks {
  int32_t begin, end;
};
__device__ __forceinline__ Chunks chunks_of_split(const Params& params, int32_t split) {
  return {params.num_chunks * split / params.splits, params.num_chunks * (split + 1) / params.splits};
}

// A thread's accumulators. r[p][b][4 * j + 2 * h + i] is channel 8 * j + 2 * (lane % 4) + i of phase p at position
// b + 2 * h of the quad, so that block 1 of a tap reads the same fragment as block 0 of an adjacent tap.
template <typename Shape>
struct Accumulators {
  float r[Shape::kPhases][2][Shape::kN / 2];

  __device__ __forceinline__ float of_position(int phase, int position, int i) const {
    return r[phase][position % 2][i + 2 * (position / 2)];
  }
};

// The four adjacent positions of a thread.
struct Quad {
  int64_t result;   // element offset of the first position in channel 0; negative if the quad does not exist
  uint32_t source;  // byte offset in a stage: first row and column of the quad, first channel of the thread
  uint32_t rows;  // bit i: source row i exists
  bool has_left, has_right;  // whether the columns before and after the quad exist
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

// [half of a step of K][column]. A word contains one channel, or two adjacent channels in half precision.
template <typename Shape>
using Words = uint32_t[2][Shape::kWindow];

template <typename Shape>
using Fragments = uint32_t[Shape::kFragments][4];

// Loads the quad's columns of a row, from `s_own` on, and the columns before and after them, zero if they do not exist.
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

// Window column of the first position of fragment f; -1 if the fragment is unused. The fragment's second position is
// two positions further. A tap that reads fragment f for block 0 reads fragment f + 1 for block 1.
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
