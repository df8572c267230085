// Plans of the correlate family: the work of a CTA, and its shared memory. The planner, the launch and the kernels
// (rows.cuh, pixels.cuh, transposed.cuh) share these definitions.
//
// GEMM: M is 64 output channels of one tap, or 32 or 16 of each of two or four taps. N is input channels. K is pixels,
// the positions of the input. A stage contains one *unit* of pixels: a strip of one or several rows of an image.
//
// Forms kRows and kBoxes (NCHW): the input is operand B in shared memory, in rows of 128 bytes of pixels, [128 bytes of
// pixels][row][input channel]. grad_output is [box of columns][row][output channel], with one box (kRows) or boxes of
// 128 bytes (kBoxes), and includes the columns that the unit's last taps read. Each tap is a shift of the columns that
// a thread loads as operand A.
//
// Form kPixels (channels_last): rows of 128 bytes contain channels, [64 or 32 input channels][row][column] and [64 or
// 32 output channels][box][row][pixel]. A box contains every stride-th column of grad_output, starting at one of the
// first taps. Each tap is a box and a shift by whole pixels.
//
// Called by: families/families.h, the plans, launch and kernels, tests. Must not know: torch, CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "correlate_sm90a/instances.h"
#include "plan/tile.h"
#include "problem/problem.h"
#include "problem/volume.h"
#include "reduce/channels.h"

namespace convt {

struct CorrelateTile {
  int32_t instance;  // index into kCorrelateInstances
  int32_t co_parts, kh_parts, kw_parts;  // parts of a CTA's output channels and taps, divided among its warps
  int32_t rows, columns;  // pixels per unit
  int32_t slots;  // pipeline stages in shared memory
  int32_t units_per_chunk;
  int32_t images;  // per launch
  bool packs_x, packs_gy;  // a packing kernel copies the tensor first

  CONVT_TILE_FIELDS(co_parts, kh_parts, kw_parts, rows, columns, slots, units_per_chunk, images, packs_x, packs_gy)
};

inline constexpr int32_t kCorrelateRows = 64;  // M of a wgmma

inline constexpr int64_t kCorrelateMost = int64_t{1} << 30;
inline constexpr int32_t kCorrelateLeastSlots = 2, kCorrelateMostSlots = 8;

inline constexpr int32_t kCorrelateBarrierBytes = 32;  // per slot: full and empty, for copied and transposed pixels
inline constexpr int32_t kCorrelateOnesBytes = 256;  // operand B with eight columns of ones, for half a step of K

inline constexpr int32_t correlate_threads(int32_t consumers) { return 128 * (consumers + 1); }

struct CorrelateLayout {
  int32_t group_ci, group_co, channels;  // channels per group; input channels of all groups
  int32_t x_group, gy_group;  // channels between groups of an operand in memory
  Axis h, w;
  PlaneRows planes;
  int32_t co_tiles, ci_tiles, kw_tiles, kh_tiles;  // fastest first; then groups
  int32_t co_parts, kh_parts, kw_parts;
  int32_t co_rows;  // output channels per part: 64, or 32 or 16 if a wgmma covers several parts
  int32_t passes;  // CTAs per chunk
  int32_t num_units, units_per_chunk, chunks;
  int32_t strips, row_units;  // units per image, along W and along H
  int32_t rows, columns;  // pixels per unit
  int32_t steps;  // steps of K per row of a unit, or per two rows with pairs_rows

  int32_t gy_boxes, gy_box_columns;  // boxes of grad_output per row, and columns per box
  int32_t gy_pitch;  // bytes per channel of a box (kRows, kBoxes) or per row of a box (kPixels)
  int32_t gy_rows, gy_row_step;  // rows of grad_output per stage, and their distance in the image
  int32_t position_rows, kernel_rows;  // stage rows between rows of pixels, and between rows of taps
  int32_t x_bytes, gy_bytes;  // per stage
  int32_t copied_bytes;
  int32_t stage_bytes, slots, barriers_begin;  // shared memory

  // The gradient of the bias sums grad_output over bias_taps x stride_w taps, starting at (bias_kh, bias_kw)
  // (problem/phases.h). bias_taps is stride_h, or all tap rows of several planes. Each chunk has bias_rows rows of
  // partial sums, or 0 if the kernel does not compute it: [tap along H][run of a warp's taps along W][CTA that
  // alternates with others].
  int32_t bias_kh, bias_kw, bias_taps;
  int32_t bias_rows, bias_runs, bias_turns;

  // Forms kRows and kBoxes.
  int32_t boxes;  // boxes of the input per row
  bool flat;  // rows of grad_output are not aligned to 16 bytes, and are copied as ranges of planes

  // Form kPixels.
  bool pairs_rows;  // half precision: a step of K, sixteen pixels, is eight pixels of each of two rows
  // float32: transposed input in a stage, rows of 128 bytes of pixels, [32 pixels][input channel].
  int32_t transposed_begin, transposed_bytes;
  int32_t gy_pixel_bytes;  // bytes per pixel of a box
  int32_t gy_blocks;  // blocks of channels, with separate boxes
  int32_t gy_box_bytes;
  int32_t tap_period, tap_shift;  // tap t reads box t % tap_period, shifted by t / tap_period * tap_shift pixels
  int32_t ones_begin;  // half precision: ones in shared memory

  int32_t threads, shared_bytes;
  int64_t num_blocks;
};

// Computes the layout of a tile. Returns false if it is illegal. Does not check shared memory against the device.
bool make_correlate_layout(const JoinedProblem& problem, const CorrelateTile& tile, CorrelateLayout* layout);

// An operand in the layout that the kernel of a form reads, packed or not.
struct CorrelateOperand {
  int64_t channels, stride[4];  // elements
  int32_t rows, columns;
  int32_t group;  // channels between groups
  int64_t packed_bytes;  // per image; 0: not packed
};
CorrelateOperand correlate_operand(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs);

// Whether a tensor map can describe the operand.
bool correlate_describes(const ConvTProblem& problem, CorrelateForm form, bool is_x, bool packs);
// Whether the operand must be packed. Rows of grad_output that no tensor map describes may be read as ranges of planes.
bool correlate_packs(const ConvTProblem& problem, CorrelateForm form, bool is_x);

// Whether a wgmma can cover these parts. In form kPixels and half precision, the parts must be rows of taps, because
// the matrix descriptor then contains their distance.
bool correlate_can_share(const CorrelateInstance& instance, int32_t parts, int32_t co_parts, int32_t kh_parts);

// Elements of grad_output that no summed tap reads: the first rows, and the first columns of the other rows.
struct CorrelateRest {
  ChannelSum sum;
  int64_t begins;  // offset in elements
};
std::vector<CorrelateRest> correlate_rests(const JoinedProblem& problem);

// Number of rows of c_out sums of these elements, which are added to the rows of all chunks; 0 if no layout computes
// the gradient of the bias.
int64_t correlate_rest_rows(const JoinedProblem& problem);

// 32-bit reads of a row of grad_output by a thread, for one of its rows and pixels of a step (kRows, kBoxes).
int32_t correlate_words(const CorrelateInstance& instance);

}  // namespace convt
