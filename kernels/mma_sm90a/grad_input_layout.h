// Plans of mma_grad_input, and the layout of a CTA's shared memory. The planner, launch/ and the kernel share it. The
// host computes it; host and device read it.
//
// Positions are elements (ih, iw) of the result. Tap k of position q reads row or column
//     q * stride - padding + k * dilation
// of grad_output. A stage contains unmodified rows of grad_output. Its pitches are congruent to the strides in memory
// modulo 16 bytes, so that bulk copies load whole rows. Only rows that a tap reads are copied: every gcd(stride,
// dilation)-th row of the tile's window, or, if these are fewer, kernel_h rows for each row of positions (`apart`). In
// both cases tap k of row q is in slot q * slot_q + k * slot_k. In channels_last a row is copied with all channels, and
// columns have the pitch `column_pitch`.
//
// K is the (channel, tap) pairs of a stage: some channels with all their taps, in the order with the fewest bank
// conflicts.
#pragma once

#include "mma_sm90a/instances.h"
#include "plan/tile.h"
#include "problem/fast_divmod.h"
#include "problem/phases.h"
#include "problem/problem.h"
#include "tiling/axis.h"

namespace convt {

struct MmaGradInputTile {
  int32_t instance;  // index into kMmaGradInputInstances
  int32_t warps;  // consumer warps
  int32_t splits;  // split-K: warps per unit
  int32_t tile_h;  // positions, elements of the result
  int32_t tile_w;
  int32_t chunk_co;  // channels of grad_output per stage
  int32_t stages;  // pipeline depth
  int32_t blocks_per_group;  // CTAs
  int32_t order;  // order of K in a stage: grad_input_tap()
  int32_t padding;  // vectors after each channel of a stage, or row of all channels, against bank conflicts

  CONVT_TILE_FIELDS(warps, splits, tile_h, tile_w, chunk_co, stages, blocks_per_group, order, padding)
};

inline constexpr int32_t kMaxMmaGradientTaps = 16;  // per axis: half the bits of a mask

// Maximum threads per CTA, limited by registers.
CONVT_HOST_DEVICE constexpr int32_t max_mma_gradient_threads(int32_t row_tiles, int32_t position_tiles, bool split) {
  return position_tiles > 4 || row_tiles * position_tiles > 8 || split ? 384 : 512;
}

inline constexpr int32_t kNoGradInputPosition = 0x7fff << 16;  // a row outside every image

// Launch parameters that the problem and the plan determine: all except pointers.
struct MmaGradInputLayout : ChannelGroups {  // the source is grad_output
  Axis h, w;

  // Tiles: tile_h x tile_w positions of one image, with all channels of one group.
  int32_t num_tiles, tiles_h, tiles_w, tile_h, tile_w;
  int32_t positions;  // tile_h * tile_w
  int32_t tiles_per_block;  // per CTA; the first longer_blocks CTAs of a group have one more
  int32_t longer_blocks;
  int32_t row_tiles;  // padded to whole units
  int32_t channel_units;  // units along channels
  int32_t position_units;
  int32_t warps;  // consumer warps
  int32_t splits;
  int32_t loaders;  // producer warps
  int32_t threads;

  // A stage: [chunk_co][slots][columns], or [slots][columns][chunk_co]. Pitches are in elements.
  int32_t chunk_co;
  int32_t num_chunks, stages, slots, slot_q, slot_k;
  bool apart;
  bool joined;  // the window's rows are contiguous in memory and in the stage
  int32_t row_step;  // rows of grad_output between slots of a window
  int32_t columns;  // per row
  bool interleaved;  // channels_last: a row is copied with all channels
  int32_t column_pitch;
  int32_t slot_pitch;
  int32_t position_pitch;  // between rows of positions
  int32_t tap_pitch;  // between rows of taps
  int32_t channel_pitch;
  bool raw_weights;  // bulk copies load weights into the last slot, from which fragments are made
  int32_t raw_pitch;  // elements between channels in that slot
  int32_t raw_bytes;  // per channel
  int32_t stage_bytes, order;
  int32_t depth;  // size of K per stage
  int32_t steps;  // steps of K per stage; the last may be partial

  // Byte offsets in shared memory: stages, weights, tables, accumulators of splits, barriers.
  int32_t weight_begin, offset_begin, mask_begin, place_begin, position_begin, outside_begin, accumulators_begin;
  int32_t barrier_begin;  // barriers of the slots, and of raw weights

  bool result_channels_last;  // channels of the result are contiguous, and a lane's rows are contiguous channels
  int32_t run;  // consecutively numbered positions of a row, whole sectors of the result; 0: the tile is row-major
  bool wide;  // vector stores: four positions per lane with runs of sixteen, otherwise two; or a lane's channels
  SmallDivmod by_tiles_w, by_tiles_h, by_copies, by_kernel_h, by_row_tiles, by_steps;
  SmallDivmod by_taps, by_kernel_w, by_chunk_co, by_order_run, by_tile_h, by_tile_w;  // for the tables

  int32_t shared_bytes;
  int64_t num_blocks;
};

// An element of K: its channel, relative to the stage's first, and its tap.
struct GradInputTap {
  int32_t co, k_h, k_w;
};

// Order of K. 0: taps of a channel are adjacent. n > 0: channels of a tap are adjacent, with stride n.
CONVT_HOST_DEVICE inline GradInputTap grad_input_tap(const MmaGradInputLayout& layout, int32_t index) {
  int32_t co, tap;
  if (layout.order == 0) {
    co = layout.by_taps(index);
    tap = index - co * layout.by_taps.value;
  } else {
    tap = layout.by_chunk_co(index);
    const int32_t c = index - tap * layout.chunk_co, run = layout.by_order_run(c);
    co = (c - run * layout.by_order_run.value) * layout.order + run;
  }
  const int32_t k_h = layout.by_kernel_w(tap);
  return GradInputTap{co, k_h, tap - k_h * layout.w.kernel};
}

// Offset in a stage, in elements, from a position's first tap in the first channel.
CONVT_HOST_DEVICE inline int32_t grad_input_place(const MmaGradInputLayout& layout, const GradInputTap& tap) {
  return tap.co * layout.channel_pitch + tap.k_h * layout.tap_pitch + tap.k_w * layout.w.dilation * layout.column_pitch;
}

// Offset in a stage, in elements, from the first position's first tap.
CONVT_HOST_DEVICE inline int32_t grad_input_position_place(const MmaGradInputLayout& layout, int32_t row,
                                                           int32_t column) {
  return row * layout.position_pitch + column * layout.w.stride * layout.column_pitch;
}

// Row and column in the tile of position number `index`. Runs are numbered down the rows first, so that few units touch
// the image's left and right edges. A run of sixteen is two position tiles, in which a lane holds four contiguous
// results.
CONVT_HOST_DEVICE inline void grad_input_position(const MmaGradInputLayout& layout, int32_t index, int32_t* row,
                                                  int32_t* column) {
  if (layout.run == 0) {
    *row = layout.by_tile_w(index);
    *column = index - *row * layout.tile_w;
    return;
  }
  const int32_t number = index / layout.run, column_run = layout.by_tile_h(number), place = index - number * layout.run;
  *row = number - column_run * layout.tile_h;
  *column =
      column_run * layout.run +
      (layout.run == kMmaPositions ? place : place % kMmaPositions / 2 * 4 + place / kMmaPositions * 2 + place % 2);
}

// Computes the layout of a plan. Returns false if it is illegal. Does not check shared memory against the device.
bool make_mma_grad_input_layout(const ConvTProblem& problem, const MmaGradInputTile& plan, MmaGradInputLayout* layout);

// Divides the tiles of a group among `blocks` CTAs. Returns false if the grid would be too large.
bool share_tiles(int32_t blocks, MmaGradInputLayout* layout);

// Average wavefronts per read of the source, over a sample of a stage's reads. May stop early and return any number
// that is at least `fewest`.
double grad_input_conflicts(const MmaGradInputLayout& layout, int32_t element, double fewest);

}  // namespace convt

namespace convt::mma_sm90a {

// Kernel parameters, constant for the whole grid.
struct GradInputParams : MmaGradInputLayout {
  const void* source;  // grad_output: [batch, groups * group_co, h.out, w.out], contiguous columns or channels
  const void* source_end;  // end of its last element
  const void* weight;  // any strides
  void* result;  // [batch, groups * group_ci, h.in, w.in], contiguous columns or channels
};

}  // namespace convt::mma_sm90a
