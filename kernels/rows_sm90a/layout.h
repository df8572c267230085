// Plans of the rows engine. Its kernels read NCHW rows unchanged and build shifted operands in registers. In both
// families a stage is one step of K of the source rows that a tile reads. A thread computes a quad, four adjacent
// positions of a row.
// Called by: families/families.h, plan.cpp, launch.cpp, the kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "plan/tile.h"
#include "problem/problem.h"

namespace convt {

// Compile-time parameters of the kernels of both families.
struct RowsShape {
  DataType dtype;
  Precision precision;
  int32_t block_n;  // result channels per tile

  constexpr int32_t element() const { return dtype == DataType::kFloat32 ? 4 : 2; }  // bytes
  constexpr int32_t vector() const { return 16 / element(); }  // elements
  constexpr int32_t channels() const { return 32 / element(); }  // per stage
  // Terms per operand: in tf32x3 a high and a low term.
  constexpr int32_t terms() const { return precision == Precision::kTf32x3 ? 2 : 1; }
  // Weights of a tap per stage: two planes [result channel][16 bytes] per term.
  constexpr int32_t tap_bytes() const { return 32 * terms() * block_n; }
};

// Tiles along each digit of a tile's index, fastest first. Images are the last digit.
struct RowsGrid {
  int32_t channels;
  int32_t phases;  // H phases of the output (`strided`)
  int32_t groups;
  int32_t inner, outer;  // strided: tiles per strip, strips; window: tiles per row, rows of tiles
};

struct RowsTile {
  int32_t instance;  // index into kStridedInstances or kWindowInstances
  int32_t block_n;  // result channels per tile
  RowsGrid grid;
  int32_t num_tiles;
  int32_t num_chunks;  // stages per tile
  int32_t source_slots;  // stages in shared memory
  int32_t barriers_begin;  // offset in shared memory
};

// `strided`: forward and gradient of the input of 4 x 4 and 3 x 3 kernels with stride 2 and padding 1, which double the
// image. Positions are pixels of the smaller image. An image is divided into strips of columns. The quads of a strip
// form a sequence, row by row. A tile is a part of this sequence or, if it is short, the strips of several images.

inline constexpr int32_t kStridedConsumers = 2;  // consumer warpgroups
inline constexpr int32_t kStridedStripWidth = 64;  // maximum, in positions
inline constexpr int32_t kStridedMostSplits = 4;  // CTAs that split a tile
inline constexpr int32_t kStridedZeroBytes = 64;  // zeros, read for rows outside the source
inline constexpr int32_t kStridedLoaders = 96;  // threads that copy an unaligned source

// Results per position, a row of the GEMM.
enum class StridedForm : int32_t {
  kOutput,  // two output columns of one row (3 x 3 kernel: of both rows), from two input rows
  kGather,  // one element of grad_input, from `kernel` rows of grad_output
};

struct StridedShape : RowsShape {
  static constexpr int32_t kThreads = 128 * (kStridedConsumers + 1);

  StridedForm form;
  int32_t kernel;  // size along both axes
  bool alternate;  // the two warpgroups compute the same positions from alternate stages

  constexpr bool output() const { return form == StridedForm::kOutput; }
  // Source columns (and rows) per position.
  constexpr int32_t step() const { return output() ? 1 : 2; }
  // Whether a tile contains all phases: those of a 3 x 3 kernel have 1, 2, 2 and 4 taps. Otherwise it contains both W
  // phases of one H phase.
  constexpr bool all_phases() const { return output() && kernel == 3; }
  // Accumulators per position and channel.
  constexpr int32_t phases() const { return !output() ? 1 : all_phases() ? 4 : 2; }
  // Source rows that a position reads, and the first of them for positions of row 0. In the second H phase of a 4 x 4
  // kernel it is one later.
  constexpr int32_t rows() const { return output() ? 2 : kernel; }
  constexpr int32_t first_row() const { return all_phases() ? 0 : -1; }
  // Source rows per weight slot.
  constexpr int32_t slot_rows() const { return output() ? 2 : 1; }
  constexpr int32_t slot_taps() const { return !output() ? kernel : kernel == 3 ? 9 : 8; }
  constexpr int32_t slot_bytes() const { return slot_taps() * tap_bytes(); }
  constexpr int32_t quads() const { return alternate ? 32 : 32 * kStridedConsumers; }  // maximum per tile
  constexpr int32_t sums() const { return 4 * quads() * block_n * phases(); }  // accumulators per tile
};

struct StridedTile : RowsTile {
  int32_t splits;  // CTAs of a cluster that split the source channels of a tile
  bool alternate;  // the warpgroups of a CTA split a tile into alternate stages
  bool whole_images;  // a stage contains whole images; each channel's image is one row of the box
  bool image_copies;  // each such row has its own bulk copy, because it exceeds a tensor map's box
  int32_t strip_width;  // positions
  int32_t tile_images;  // images per tile; 1 if a tile is a part of a strip
  int32_t tile_quads;
  int32_t box_rows, pitch;  // rows per stage, elements between a row's channels
  int32_t box_lead;  // columns before the strip's first
  int32_t stage_bytes, weight_slots;
  int32_t weights_begin, zeros_begin;  // offsets in shared memory

  CONVT_TILE_FIELDS(block_n, splits, alternate, strip_width, tile_images, tile_quads, whole_images, image_copies,
                    num_tiles, num_chunks, source_slots, weight_slots)
};

// `window`: layers with stride and dilation 1. Source windows stay in registers for all taps of a row. A tile has
// `tile_h` rows and `tile_w` columns. Each of the eight consumer warps computes 32 columns of a few rows. The tile's
// width determines how the warps are arranged.

inline constexpr int32_t kWindowKernelH = 3;
inline constexpr int32_t kWindowWarps = 8;  // consumer warps
inline constexpr int32_t kWindowColumns = 32;  // per warp
inline constexpr int32_t kWindowStoreWarps = 7;  // the eighth warp loads
inline constexpr int32_t kWindowMaps = 16;  // maximum number of source classes

struct WindowShape : RowsShape {
  static constexpr int32_t kThreads = 512;

  int32_t kernel_w;

  // Result rows per warp. Accumulators occupy at most 128 registers per thread. In tf32x3 results and runs occupy 64
  // each.
  constexpr int32_t warp_rows() const {
    if (terms() > 1) return 64 / block_n;
    return block_n == 32 && element() == 2 ? 4 : 2;
  }
  // Tiles are 32, 64 or 128 columns wide.
  constexpr int32_t tile_h(int32_t tile_w) const { return kWindowWarps * kWindowColumns / tile_w * warp_rows(); }
  // Whether the kernel supports several source classes. In half precision with 32 channels and 7 columns, registers run
  // out.
  constexpr bool reads_classes() const { return warp_rows() <= 2 || kernel_w < 7; }
  constexpr int32_t weight_bytes() const { return kWindowKernelH * kernel_w * tap_bytes(); }  // per stage

  // Results are stored through shared memory, [warpgroup][channel][row][column]. If all channels leave no space for two
  // stages, a half or a quarter is written at a time.
  constexpr int32_t staged_pieces() const {
    if (terms() > 1) return block_n == 64 && kernel_w > 5 ? 4 : 1;
    return block_n * element() > 128 && kernel_w > 3 ? 2 : 1;
  }
  constexpr int32_t staged_channels() const { return block_n / staged_pieces(); }
  // Elements between channels: a warpgroup's positions, plus 16 bytes that avoid bank conflicts.
  constexpr int32_t staged_pitch() const { return kWindowWarps / 2 * kWindowColumns * warp_rows() + vector(); }
  // Bytes per warpgroup, without and with the bias of a tile.
  constexpr int32_t staged_result_bytes() const { return staged_channels() * staged_pitch() * element(); }
  constexpr int32_t staged_bytes() const { return staged_result_bytes() + 4 * block_n; }
};

struct WindowTile : RowsTile {
  int32_t tile_h, tile_w;
  int32_t begin_w;  // first column of the first tile, at most 0, so that source windows are aligned to 16 bytes
  int32_t overlap;  // columns that adjacent tiles share, so that the columns that a tile stores start at a sector; or 0
  // Tensor copies start at multiples of 16 bytes. If source rows do not, all rows with the same index modulo
  // `row_classes`, of channels with the same index modulo `channel_classes`, have the same misalignment. Such a class
  // has its own tensor map, which starts up to 15 bytes before the rows. Powers of two; 1 if all rows are aligned.
  int32_t row_classes, channel_classes;
  int32_t pitch;  // elements between channels of a stage
  int32_t slot_bytes;  // per stage, a multiple of 128: source, then weights
  int32_t granule;  // common alignment of the first columns of tiles and of result rows, in elements, at most 16 bytes
  int32_t staged_begin;  // offset in shared memory

  constexpr int32_t box_rows() const {  // a tile's source rows of one class
    return (tile_h + kWindowKernelH - 1 + row_classes - 1) / row_classes;
  }

  CONVT_TILE_FIELDS(block_n, tile_h, tile_w, overlap, num_tiles, num_chunks, source_slots, row_classes, channel_classes)
};

// First source coordinate that a result reads, relative to its own coordinate.
inline int32_t window_shift(const Axis& axis, Direction direction) {
  return direction == Direction::kForward ? axis.padding - (axis.kernel - 1) : -axis.padding;
}

}  // namespace convt
