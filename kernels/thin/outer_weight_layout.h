// Gradient of the weight in channels_last by outer products: the weights and pixels of a CTA, the order of sums, and
// the shared-memory layout. The planner, launch/ and the kernel (thin/outer_weight.cuh) share this definition.
//
// In channels_last, all taps of a tap row read one contiguous run of a row of grad_output for a pixel: column
// j = kw * c_out + co of the weight's row (ci, kh) reads element
//     (iw * stride - padding) * c_out + kw * dilation * c_out + co
// of grad_output's row. The gradient is thus a sum of outer products of a pixel's input channels and such runs, and
// grad_output needs no rearrangement. Elements outside the row belong to taps that do not exist.
//
// Pixels are the positions of the input, in tiles of tile_h x tile_w. Tiles are numbered along W, then H, then the
// images. A chunk is tiles_per_chunk tiles: the pixels of a CTA. `splits` threads share each weight and process the
// columns of a tile in rotation. Tiles, chunks and splits depend only on the problem, so the result has the same bits
// on every GPU.
//
// Columns of the weight's rows are divided into vectors of the instance's width. A CTA owns block_ci input channels x
// block_kh tap rows x block_vectors vectors of each, a thread kOuterChannels x kOuterColumns of these weights.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "thin/instances.h"
#include "tiling/window.h"

namespace convt {

// Tile of the outer products. All fields except the instance and the blocks decide the order of sums.
struct ThinOuterWeightTile {
  int32_t instance;  // index into kThinOuterWeightInstances
  int32_t tile_h;  // pixels per stage
  int32_t tile_w;
  int32_t tiles_per_chunk;  // per CTA
  int32_t splits;  // threads that share the pixels of a weight, a power of two
  int32_t block_ci;  // input channels per CTA
  int32_t block_kh;  // tap rows per CTA
  int32_t block_vectors;  // vectors of columns per tap row

  CONVT_TILE_FIELDS(tile_h, tile_w, tiles_per_chunk, splits, block_ci, block_kh, block_vectors)
};

inline constexpr int32_t kOuterChannels = 8, kOuterColumns = 8;
inline constexpr int32_t kOuterWeightStages = 2;
inline constexpr int32_t kMaxOuterWeightThreads = 256;
inline constexpr int64_t kMostOuterElems = 1 << 20;  // limit of channels and of elements per row
inline constexpr int32_t kOuterVectorBytes = 16;  // bytes per entry of the list of vectors

struct ThinOuterWeightLayout {
  Axis h;
  Axis w;
  int32_t c_in;
  int32_t c_out;
  int32_t columns;  // columns of the weight's rows: w.kernel * c_out
  int32_t row_vectors;  // vectors per row; the last may be partial

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
  int32_t gy_begin;  // byte offset in a stage
  int32_t stage_bytes;
  int32_t list_begin;  // byte offset, after the stages and the scratch that reduces splits
  int32_t shared_bytes;
};

// Element of grad_output's row that a column of the weight's rows reads, relative to the pixel's first tap.
CONVT_HOST_DEVICE inline int32_t outer_position(const ThinOuterWeightLayout& layout, int32_t column) {
  if (layout.w.dilation == 1) return column;
  const int32_t kw = column / layout.c_out;
  return column + kw * (layout.w.dilation - 1) * layout.c_out;
}

// Returns false if the plan is illegal for the problem or exceeds 32 bits.
bool make_thin_outer_weight_layout(const ConvTProblem& problem, const ThinOuterWeightTile& plan,
                                   ThinOuterWeightLayout* layout);

}  // namespace convt

namespace convt::thin {

// Kernel parameters. thin/launch.cpp fills them; they are constant for the whole grid.
struct OuterWeightParams : ThinOuterWeightLayout {
  const float* x;  // [batch, h.in, w.in, c_in]; any strides of images and rows
  const float* gy;  // [batch, h.out, w.out, c_out]; any strides of images and rows
  float* slabs;  // [chunks][c_in, h.kernel, w.kernel, c_out], contiguous
  int64_t x_image;  // strides in elements
  int64_t x_row;
  int64_t gy_image;
  int64_t gy_row;
  int32_t x_copy;  // elements per copy to shared memory: 4, 2 or 1
  int32_t gy_copy;
  FastDivmod by_x_vectors;  // copies per pixel
};

}  // namespace convt::thin
