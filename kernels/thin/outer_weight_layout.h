// The gradient of the weight in channels_last by outer products: which sums and pixels a CTA owns, in which order they
// are added, and where its operands lie in shared memory. One definition for the planner, launch/ and the kernel
// (thin/outer_weight.cuh).
//
// In channels_last what the taps of a tap row read for a pixel is one run of a row of grad_output: column
// j = kw * c_out + co of the weight's row (ci, kh) meets element
//     (iw * stride - padding) * c_out + kw * dilation * c_out + co
// of grad_output's row. So the gradient is a sum of outer products, of a pixel's input channels and such runs, and no
// element of grad_output is moved before it is multiplied. What lies outside the row is what taps that do not exist
// would read.
//
// Pixels are the positions of the input, in tiles of tile_h x tile_w; tiles are counted along W, then H, then the
// images. A chunk is tiles_per_chunk tiles: what a CTA adds up. `splits` threads share each sum: they take the
// columns of a tile one after another, in rotation. Tiles, chunks and splits are functions of the problem alone: the
// result's bits are the same on every GPU.
//
// Columns of the weight's rows are cut into vectors of the instance's width. A CTA owns block_ci input channels x
// block_kh tap rows x block_vectors vectors of each, a thread kOuterChannels x kOuterColumns of these sums.
#pragma once

#include <cstdint>

#include "plan/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "thin/instances.h"
#include "tiling/window.h"

namespace convt {

// The tile of outer products for the gradient of the weight. All but the instance and the blocks decide the order of
// sums.
struct ThinOuterWeightTile {
  int32_t instance;  // index into kThinOuterWeightInstances
  int32_t tile_h;  // pixels of a stage
  int32_t tile_w;
  int32_t tiles_per_chunk;  // of a CTA
  int32_t splits;  // threads that share a sum's pixels, a power of two
  int32_t block_ci;  // input channels of a CTA
  int32_t block_kh;  // tap rows of a CTA
  int32_t block_vectors;  // vectors of columns of each

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("tiles_per_chunk", tiles_per_chunk);
    field("splits", splits);
    field("block_ci", block_ci);
    field("block_kh", block_kh);
    field("block_vectors", block_vectors);
  }
};

inline constexpr int32_t kOuterChannels = 8, kOuterColumns = 8;
inline constexpr int32_t kOuterWeightStages = 2;
inline constexpr int32_t kMaxOuterWeightThreads = 256;
inline constexpr int64_t kMostOuterElems = 1 << 20;  // of a row, and channels
inline constexpr int32_t kOuterVectorBytes = 16;  // of the list that says what each vector is

struct ThinOuterWeightLayout {
  Axis h;
  Axis w;
  int32_t c_in;
  int32_t c_out;
  int32_t columns;  // of the weight's rows: w.kernel * c_out
  int32_t row_vectors;  // these in vectors, the last one perhaps not full

  // Pixels.
  int32_t tile_h;
  int32_t tile_w;
  int32_t h_tiles;
  int32_t w_tiles;
  int32_t pixel_tiles;  // of all images
  int32_t tiles_per_chunk;
  int32_t chunks;

  // CTAs: vectors, tap rows, input channels (fastest first), then chunks.
  int32_t block_ci;
  int32_t block_kh;
  int32_t block_vectors;
  int32_t vector_tiles;
  int32_t kh_tiles;
  int32_t ci_tiles;
  int64_t num_blocks;

  // Threads: jobs, then splits.
  int32_t splits;
  int32_t threads_ci;
  int32_t threads_columns;
  int32_t jobs;
  int32_t threads;

  // A stage: [tile_h][tile_w][block_ci] of the input, then [rows.extent][gy_pitch] of grad_output.
  Window rows;
  int32_t gy_pitch;
  int32_t gy_begin;  // bytes, in a stage
  int32_t stage_bytes;
  int32_t list_begin;  // behind the stages, and the sums that splits hand on
  int32_t shared_bytes;
};

// Where a column of the weight's rows meets a row of grad_output, from where the pixel's first tap meets it.
CONVT_HOST_DEVICE inline int32_t outer_position(const ThinOuterWeightLayout& layout, int32_t column) {
  if (layout.w.dilation == 1) return column;
  const int32_t kw = column / layout.c_out;
  return column + kw * (layout.w.dilation - 1) * layout.c_out;
}

// False where a plan is not one of the problem, or 32 bits do not hold its numbers.
bool make_thin_outer_weight_layout(const ConvTProblem& problem, const ThinOuterWeightTile& plan,
                                   ThinOuterWeightLayout* layout);

}  // namespace convt

namespace convt::thin {

// What a kernel is launched with. Filled by thin/launch.cpp, constant for the whole grid.
struct OuterWeightParams : ThinOuterWeightLayout {
  const float* x;  // [batch, h.in, w.in, c_in]: images and rows anywhere
  const float* gy;  // [batch, h.out, w.out, c_out]: images and rows anywhere
  float* slabs;  // [chunks][c_in, h.kernel, w.kernel, c_out], contiguous
  int64_t x_image;  // elements from one to the next
  int64_t x_row;
  int64_t gy_image;
  int64_t gy_row;
  int32_t x_copy;  // elements of a copy to shared memory: 4, 2 or 1
  int32_t gy_copy;
  FastDivmod by_x_vectors;  // copies of a pixel
};

}  // namespace convt::thin
