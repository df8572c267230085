// The mma engine's view of the gradient of the weight: what a CTA and its warps add up, in which order, and where its
// operands lie in shared memory. One definition for the planner, launch/ and the kernel (mma_sm90a/grad_weight.cuh).
//
// GEMM: rows are (output channel, tap) pairs, columns input channels, K is pixels: the positions of the input. A stage
// holds rows of both operands as they are in memory, in strips of pixels (tiling/strips.h); units are rows of pixels of
// one strip. A row of the GEMM is then a fixed distance in a stage, and a pixel of one too.
//
// Where channels are neighbours in memory (the instance's kPixels), they are in a stage too: its rows are pixels one
// after another. Rows come whole, as one run each (`x_runs`, `gy_runs`), or pixel by pixel, with room behind each so
// that pixels meet different banks; then of grad_output's columns only those that a tap reads, where the others are
// more (`columns_apart`): [row][tap along W][pixel].
//
// A lane of a warp takes every fourth pixel of a strip, in one of several ways (pixel_order), so that the lanes' reads
// meet different banks of shared memory.
#pragma once

#include "mma_sm90a/instances.h"
#include "problem/problem.h"
#include "tiling/strip_params.h"

namespace convt {

// The tile for the gradient of the weight.
struct MmaGradWeightTile {
  int32_t instance;  // index into kMmaGradWeightInstances
  int32_t strip;  // columns of pixels;
  int32_t units_per_chunk, block_ci, block_co, block_kh, block_kw;
  int32_t tile_units;  // of a stage
  int32_t stages;
  int32_t loaders;  // warps that load
  bool taps_first;  // neighbouring rows of the GEMM are taps of a channel, not channels of a tap
  int32_t pixel_order;  // which pixels are neighbouring lanes'
  int32_t x_padding;  // vectors behind a channel (or pixel) of a stage, so that these meet different banks
  int32_t gy_padding;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_ci", block_ci);
    field("block_co", block_co);
    field("block_kh", block_kh);
    field("block_kw", block_kw);
    field("strip", strip);
    field("units_per_chunk", units_per_chunk);
    field("tile_units", tile_units);
    field("stages", stages);
    field("loaders", loaders);
    field("taps_first", taps_first);
    field("pixel_order", pixel_order);
    field("x_padding", x_padding);
    field("gy_padding", gy_padding);
  }
};

inline constexpr int32_t kMaxMmaGradWeightThreads = 512;
inline constexpr int32_t kMmaGradWeightPixels = 8;  // of a product
inline constexpr int32_t kMmaGradWeightOrders = 5;  // of pixels

struct MmaGradWeightLayout : StripLayout {
  int32_t block_kw;
  int32_t rows;  // of the GEMM, of a CTA: block_kh * block_kw * block_co
  bool taps_first;  // numbered (co, kh, kw), kw fastest; else (kh, kw, co)
  int32_t row_units;  // warps along rows, each of the instance's row_tiles x 16
  int32_t column_units;  // and along columns, column_tiles x 8
  int32_t warps;  // that multiply; others load
  int32_t loaders;
  int32_t steps;  // of K, of a row of pixels
  int32_t near_pixels;  // pixels between lanes t and t + 1 (t even)
  int32_t far_pixels;  // and between lanes t and t + 2
  int32_t next_pixels;  // and between one of a lane's and its next
  int32_t table_begin;  // bytes: where rows of the GEMM lie
  bool x_runs, gy_runs, columns_apart;
  int32_t x_pixel;  // elements of a stage from a pixel of the input to the next
  int32_t gy_column;  // from a copied column of grad_output to the next
  int32_t gy_pixel;  // from the column that a tap reads for a pixel to that for the next
  int32_t gy_tap_column;  // and from a tap's column to that of the next tap of a row
  StripPitches pitches;
};

// A row of the GEMM: its channel and taps, of the CTA's first.
struct MmaGradWeightRow {
  int32_t co, kh, kw;
};
CONVT_HOST_DEVICE inline MmaGradWeightRow mma_grad_weight_row(const MmaGradWeightLayout& layout, int32_t index) {
  const int32_t fast = layout.taps_first ? layout.block_kw : layout.block_co;
  const int32_t middle = layout.taps_first ? layout.block_kh : layout.block_kw;
  const int32_t rest = index / fast, first = index - rest * fast, last = rest / middle, second = rest - last * middle;
  return layout.taps_first ? MmaGradWeightRow{last, second, first} : MmaGradWeightRow{first, last, second};
}

// Elements of a stage from grad_output's element of row 0.
CONVT_HOST_DEVICE inline int32_t mma_grad_weight_place(const MmaGradWeightLayout& layout, const MmaGradWeightRow& row) {
  return row.co * layout.pitches.gy_channel + row.kh * layout.pitches.gy_tap + row.kw * layout.gy_tap_column;
}

// The first pixel of lane t (0 .. 3).
CONVT_HOST_DEVICE inline int32_t mma_grad_weight_pixel(const MmaGradWeightLayout& layout, int32_t t) {
  return (t & 1) * layout.near_pixels + (t >> 1) * layout.far_pixels;
}

// What are neighbours in both operands' memory are what the instance wants.
bool serves_mma_grad_weight(const ConvTProblem& problem, const MmaGradWeightInstance& instance);

// The largest vectors, in bytes, that `block` channels of each group of each pixel of a tensor consist of, if it begins
// on one.
int64_t pixel_vector_bytes(const int64_t (&stride)[4], int64_t group, int64_t block, DataType dtype);

// The layout of a plan, or false where it is illegal. Does not ask whether the device has so much shared memory.
bool make_mma_grad_weight_layout(const ConvTProblem& problem, const MmaGradWeightTile& plan,
                                 MmaGradWeightLayout* layout);

// Wavefronts of shared memory that a read of an operand takes, on average over the rows of a CTA; or any number that is
// not below `fewest`, where there are as many.
double mma_grad_weight_conflicts(const MmaGradWeightLayout& layout, int32_t element, double fewest);

// The wavefronts of a plan; HUGE_VAL where it is illegal.
double mma_grad_weight_conflicts(const ConvTProblem& problem, const MmaGradWeightTile& tile);

// The order of pixels and of rows that meet fewest bank conflicts, and where columns are innermost the padding behind
// channels. Returns these conflicts.
double choose_banks(const ConvTProblem& problem, MmaGradWeightTile* tile);

}  // namespace convt

namespace convt::mma_sm90a {

// How pixels of an operand come one by one.
struct PixelCopies {
  FastDivmod by_vectors;  // copies of a pixel
  int32_t lanes_pixels;  // 32 copies in pixels and a rest
  int32_t lanes_vectors;
  int32_t vector_bytes;  // of a copy: 16, 8, 4 or 2
};

// What the kernel is launched with, constant for the whole grid: what the loader of strips reads, and the rest.
struct GradWeightParams : tiling::StripParams {
  MmaGradWeightLayout layout;
  FastDivmod by_step_columns;  // columns of grad_output from a step to the next
  PixelCopies x_copies;  // where channels are innermost
  PixelCopies gy_copies;
  FastDivmod by_block_kw;
};

}  // namespace convt::mma_sm90a
