// Plans of mma_grad_weight: the work of a CTA and its warps, the order of additions, and the layout of shared memory.
// The planner, launch/ and the kernel (mma_sm90a/grad_weight.cuh) share it.
//
// GEMM: M is (output channel, tap) pairs, N is input channels, K is pixels, the positions of the input. A stage
// contains unmodified rows of both operands, in strips of pixels (tiling/strips.h). A unit is a row of pixels of one
// strip. Each row of the GEMM and each pixel is thus a constant offset in a stage.
//
// With contiguous channels (instances with kPixels), a row of a stage is a sequence of pixels with all their channels.
// It is copied as one run (`x_runs`, `gy_runs`), or pixel by pixel, with padding after each pixel against bank
// conflicts. In the second case, only columns of grad_output that a tap reads are copied if these are fewer
// (`columns_apart`): [row][tap along W][pixel].
//
// A lane reads a quarter of a strip's pixels. pixel_order selects which, so that lanes read different banks.
#pragma once

#include "mma_sm90a/instances.h"
#include "plan/tile.h"
#include "problem/problem.h"
#include "tiling/strips.h"

namespace convt {

struct MmaGradWeightTile {
  int32_t instance;  // index into kMmaGradWeightInstances
  int32_t strip;  // columns of pixels
  int32_t units_per_chunk, block_ci, block_co, block_kh, block_kw;
  int32_t tile_units;  // units per stage
  int32_t stages;
  int32_t loaders;  // producer warps
  bool taps_first;  // adjacent rows of the GEMM are taps of a channel; otherwise channels of a tap
  int32_t pixel_order;  // assignment of pixels to lanes
  int32_t x_padding;  // vectors after each channel (or pixel) of a stage, against bank conflicts
  int32_t gy_padding;

  CONVT_TILE_FIELDS(block_ci, block_co, block_kh, block_kw, strip, units_per_chunk, tile_units, stages, loaders,
                    taps_first, pixel_order, x_padding, gy_padding)
};

inline constexpr int32_t kMaxMmaGradWeightThreads = 512;
inline constexpr int32_t kMmaGradWeightPixels = 8;  // per product
inline constexpr int32_t kMmaGradWeightOrders = 5;  // number of pixel orders

struct MmaGradWeightLayout : StripLayout {
  int32_t block_kw;
  int32_t rows;  // GEMM rows per CTA: block_kh * block_kw * block_co
  bool taps_first;  // rows are numbered (co, kh, kw), kw fastest; otherwise (kh, kw, co)
  int32_t row_units;  // warps along rows, row_tiles x 16 each
  int32_t column_units;  // warps along columns, column_tiles x 8 each
  int32_t warps;  // consumer warps
  int32_t loaders;  // producer warps
  int32_t steps;  // steps of K per row of pixels
  int32_t near_pixels;  // pixels between lanes t and t + 1 (t even)
  int32_t far_pixels;  // pixels between lanes t and t + 2
  int32_t next_pixels;  // pixels between consecutive pixels of a lane
  int32_t table_begin;  // byte offset of the table of GEMM rows
  bool x_runs, gy_runs, columns_apart;
  // Pitches in a stage, in elements:
  int32_t x_pixel;  // between pixels of the input
  int32_t gy_column;  // between copied columns of grad_output
  int32_t gy_pixel;  // between the columns that a tap reads for adjacent pixels
  int32_t gy_tap_column;  // between the columns of adjacent taps
  StripPitches pitches;
};

// A row of the GEMM: its channel and tap, relative to the CTA's first.
struct MmaGradWeightRow {
  int32_t co, kh, kw;
};
CONVT_HOST_DEVICE inline MmaGradWeightRow mma_grad_weight_row(const MmaGradWeightLayout& layout, int32_t index) {
  const int32_t fast = layout.taps_first ? layout.block_kw : layout.block_co;
  const int32_t middle = layout.taps_first ? layout.block_kh : layout.block_kw;
  const int32_t rest = index / fast, first = index - rest * fast, last = rest / middle, second = rest - last * middle;
  return layout.taps_first ? MmaGradWeightRow{last, second, first} : MmaGradWeightRow{first, last, second};
}

// Offset of a row's element of grad_output in a stage, relative to that of row 0.
CONVT_HOST_DEVICE inline int32_t mma_grad_weight_place(const MmaGradWeightLayout& layout, const MmaGradWeightRow& row) {
  return row.co * layout.pitches.gy_channel + row.kh * layout.pitches.gy_tap + row.kw * layout.gy_tap_column;
}

// First pixel of lane t (0 .. 3).
CONVT_HOST_DEVICE inline int32_t mma_grad_weight_pixel(const MmaGradWeightLayout& layout, int32_t t) {
  return (t & 1) * layout.near_pixels + (t >> 1) * layout.far_pixels;
}

// Whether the contiguous dimension of both operands is the one that the instance requires.
bool serves_mma_grad_weight(const ConvTProblem& problem, const MmaGradWeightInstance& instance);

// Size in bytes of the largest vectors that divide `block` channels of each group of each pixel, for an aligned tensor.
int64_t pixel_vector_bytes(const int64_t (&stride)[4], int64_t group, int64_t block, DataType dtype);

// Computes the layout of a plan. Returns false if it is illegal. Does not check shared memory against the device.
bool make_mma_grad_weight_layout(const ConvTProblem& problem, const MmaGradWeightTile& plan,
                                 MmaGradWeightLayout* layout);

// Average wavefronts per read of an operand over the rows of a CTA. May stop early and return any number that is at
// least `fewest`.
double mma_grad_weight_conflicts(const MmaGradWeightLayout& layout, int32_t element, double fewest);

// The same average for a tile; HUGE_VAL if it is illegal.
double mma_grad_weight_conflicts(const ConvTProblem& problem, const MmaGradWeightTile& tile);

// Sets the order of pixels and of rows with the fewest bank conflicts, and with columns innermost the padding. Returns
// the average wavefronts per read.
double choose_banks(const ConvTProblem& problem, MmaGradWeightTile* tile);

}  // namespace convt

namespace convt::mma_sm90a {

// Copies of an operand pixel by pixel.
struct PixelCopies {
  FastDivmod by_vectors;  // copies per pixel
  int32_t lanes_pixels;  // 32 copies in whole pixels,
  int32_t lanes_vectors;  // plus this many vectors
  int32_t vector_bytes;  // per copy: 16, 8, 4 or 2
};

// Kernel parameters, constant for the whole grid. The base contains the parameters of the strip loader.
struct GradWeightParams : tiling::StripParams {
  MmaGradWeightLayout layout;
  FastDivmod by_step_columns;  // columns of grad_output between steps
  PixelCopies x_copies;  // channels innermost only
  PixelCopies gy_copies;
  FastDivmod by_block_kw;
};

}  // namespace convt::mma_sm90a
