// The mma engine's view of the gradient of the input, and where a CTA's data lie in shared memory: one definition for
// the planner (is it legal? does it fit?), launch/ and the kernel. Host and device read it, host makes it.
//
// Positions are elements (ih, iw) of the result; tap k of position q reads row, or column,
//     q * stride - padding + k * dilation
// of grad_output. A stage holds rows of it as they are in memory: pitches are congruent to memory's strides modulo 16
// bytes, so that bulk copies bring whole rows. Only rows that a tap reads are copied: every gcd(stride, dilation)-th of
// the tile's window, or, where that is fewer, kernel rows for each row of positions (`apart`). Both put tap k of row q
// into slot q * slot_q + k * slot_k. In channels_last a row is copied with all of its channels, between which columns
// then are `column_pitch` apart.
//
// K is the (channel, tap) pairs of a stage, in the order that meets fewest bank conflicts: some channels with all of
// their taps.
#pragma once

#include "mma_sm90a/layout.h"
#include "problem/problem.h"

namespace convt {

// The tile for the gradient of the input.
struct MmaGradInputTile {
  int32_t instance;  // index into kMmaGradInputInstances
  int32_t warps;  // that multiply
  int32_t splits;  // of K: as many warps share the accumulators of a unit
  int32_t tile_h;  // positions: elements of the result;
  int32_t tile_w;
  int32_t chunk_co;  // channels of grad_output in a stage
  int32_t stages;  // pipeline depth
  int32_t blocks_per_group;
  int32_t order;  // of K in a stage: grad_input_tap()
  int32_t padding;  // vectors behind a channel of a stage, or a row of all channels, against bank conflicts

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("warps", warps);
    field("splits", splits);
    field("tile_h", tile_h);
    field("tile_w", tile_w);
    field("chunk_co", chunk_co);
    field("stages", stages);
    field("blocks_per_group", blocks_per_group);
    field("order", order);
    field("padding", padding);
  }
};

inline constexpr int32_t kMaxMmaGradientTaps = 16;  // of an axis: half the bits of a mask

// Threads of a CTA, by registers.
CONVT_HOST_DEVICE constexpr int32_t max_mma_gradient_threads(int32_t row_tiles, int32_t position_tiles, bool split) {
  return position_tiles > 4 || row_tiles * position_tiles > 8 || split ? 384 : 512;
}

inline constexpr int32_t kNoGradInputPosition = 0x7fff << 16;  // in a row that no image has

// Everything about a launch that follows from the problem and the plan, but the pointers.
struct MmaGradInputLayout {
  int64_t source_stride[4];  // of grad_output
  int64_t result_stride[4];
  int64_t weight_stride[4];
  int64_t weight_group_stride;
  Axis h, w;
  int32_t groups, group_ci, group_co;

  // Tiles: tile_h x tile_w positions of one image, of one group and all its channels.
  int32_t num_tiles, tiles_h, tiles_w, tile_h, tile_w;
  int32_t positions;  // tile_h * tile_w
  int32_t tiles_per_block;  // of a group's first blocks one more
  int32_t longer_blocks;
  int32_t row_tiles;  // whole units of the instance's
  int32_t channel_units;  // units of the instance's row tiles
  int32_t position_units;
  int32_t warps;  // that multiply
  int32_t splits;
  int32_t loaders;  // warps that load
  int32_t threads;

  // A stage: [chunk_co][slots][columns], or [slots][columns][chunk_co], distances in elements.
  int32_t chunk_co;
  int32_t num_chunks, stages, slots, slot_q, slot_k;
  bool apart;
  bool joined;  // the window's rows follow each other in memory, and in the stage
  int32_t row_step;  // of a window: rows from a slot to the next
  int32_t columns;  // of a row
  bool interleaved;  // the channels of a column follow each other: a row is copied with all of them
  int32_t column_pitch;  // from a column to the next
  int32_t slot_pitch;
  int32_t position_pitch;  // from a row of positions to the next
  int32_t tap_pitch;  // from a row of taps to the next
  int32_t channel_pitch;
  bool raw_weights;  // weights come to the last slot by bulk copies, where fragments are made of them
  int32_t raw_pitch;  // elements, from a channel to the next in the slot
  int32_t raw_bytes;  // of a channel
  int32_t stage_bytes, order;
  int32_t depth;  // of K, of a stage
  int32_t steps;  // of K, of a stage; the last may lack some

  // Shared memory, bytes from its beginning: stages, weights, tables, accumulators of splits, barriers.
  int32_t weight_begin, offset_begin, mask_begin, place_begin, position_begin, outside_begin, accumulators_begin;
  int32_t barrier_begin;  // of the slots, and of raw weights

  bool result_channels_last;  // the channels of a position follow each other, and a lane's rows are neighbours
  int32_t
      run;  // positions of a row that are numbered one after the other, whole sectors of the result; 0: all of the tile
  bool wide;  // a lane writes its neighbours at once, four in a run of sixteen, otherwise two; or its channels
  SmallDivmod by_tiles_w, by_tiles_h, by_copies, by_kernel_h, by_row_tiles, by_steps;
  SmallDivmod by_taps, by_kernel_w, by_chunk_co, by_order_run, by_tile_h, by_tile_w;  // of the tables

  int32_t shared_bytes;
  int64_t num_blocks;
};

// An element of K: its channel, counted from the stage's first, and its tap.
struct GradInputTap {
  int32_t co, k_h, k_w;
};

// Orders of K: 0: the taps of a channel are neighbours; n: channels of a tap are, every (channels / n)-th.
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

// Elements of a stage from where a position's first tap lies in its first channel.
CONVT_HOST_DEVICE inline int32_t grad_input_place(const MmaGradInputLayout& layout, const GradInputTap& tap) {
  return tap.co * layout.channel_pitch + tap.k_h * layout.tap_pitch + tap.k_w * layout.w.dilation * layout.column_pitch;
}

// Elements of a stage from where the first position's first tap lies.
CONVT_HOST_DEVICE inline int32_t grad_input_position_place(const MmaGradInputLayout& layout, int32_t row,
                                                           int32_t column) {
  return row * layout.position_pitch + column * layout.w.stride * layout.column_pitch;
}

// Row and column in the tile of a position's number. Where the tile is made of runs, those below each other come first,
// so that few units meet the image's left and right edges. A run of sixteen is two position tiles, of which a lane has
// four neighbouring results.
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

// The layout of a plan, or false where it is illegal. Does not ask whether the device has so much shared memory.
bool make_mma_grad_input_layout(const ConvTProblem& problem, const MmaGradInputTile& plan, MmaGradInputLayout* layout);

// The tiles of a group to so many CTAs. False where a grid has not as many.
bool share_tiles(int32_t blocks, MmaGradInputLayout* layout);

// Wavefronts of shared memory that a read of the source takes, by a sample of a stage's; or any number that is not
// below `fewest`, where there are as many.
double grad_input_conflicts(const MmaGradInputLayout& layout, int32_t element, double fewest);

}  // namespace convt

namespace convt::mma_sm90a {

// What the kernel is launched with, constant for the whole grid.
struct GradInputParams : MmaGradInputLayout {
  const void* source;  // grad_output: [batch, groups * group_co, h.out, w.out], columns or channels are neighbours
  const void* source_end;  // behind its last element
  const void* weight;  // any strides
  void* result;  // [batch, groups * group_ci, h.in, w.in], columns or channels are neighbours
};

}  // namespace convt::mma_sm90a
