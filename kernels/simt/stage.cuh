// Order of the sums: the input channels and taps of each pipeline stage. A tile processes its W phases in sequence.
//
// ieee: input channels, then taps along D, H, then W, all ascending (taps along D are channels, see Params). The taps
// of a channel are split over stages
//       only if one stage cannot hold all taps of one input channel.
// aten: taps outermost, descending along D, H, then W (which is ascending input plane, row, then column), one tap
//       per stage; input channels ascending within a tap.
#pragma once

#include <type_traits>

#include "element/arithmetic.cuh"
#include "simt/layout.h"

namespace convt::simt {

inline constexpr int kMaxThreads = 256;

using element::add;
using element::ElementOf;
using element::fused_multiply_add;
using element::to_accumulator;
using element::to_element;

// Compile-time parameters of an instance.
template <DataType kDataType, Precision kPrecision, Direction kDirection, int kThreadCoValue, int kQuadsValue>
struct Traits {
  using Element = typename ElementOf<kDataType>::type;                                        // in memory
  using Accumulator = std::conditional_t<kDataType == DataType::kFloat64, double, float>;     // in registers
  static constexpr bool kTapSums = kPrecision == Precision::kAten;  // a separate accumulator per tap
  static constexpr bool kAscending = kDirection == Direction::kGradInput;  // later taps read higher coordinates
  static constexpr int kThreadCo = kThreadCoValue;                  // output channels per thread
  static constexpr int kQuads = kQuadsValue;                        // runs of 4 positions per thread
  // Two CTAs share an SM, so that one computes while the other waits for loads or stores.
  static constexpr int kMinBlocks = sizeof(Accumulator) == 8 ? 1 : 2;
};

// Contents of one stage. A W phase without taps is one stage without input channels.
struct Stage {
  bool end;           // not a stage: the tile is complete
  int32_t phase;     // W phase, counted from the tile's first
  int32_t depth;     // tap sums: tap along the depth
  int32_t ci_begin;  // within the group
  int32_t num_ci;
  int32_t kh_begin;  // index into the taps of the H phase
  int32_t num_kh;
  int32_t kw_begin;  // index into the taps of the W phase
  int32_t num_kw;
  bool first_of_taps;  // the taps or the phase differ from the previous stage
  bool last_of_tap;    // tap sums: the last input channels of this tap
  bool last_of_phase;
};

// Layout of a stage's input in shared memory: planes [tile_n][rows][pitch], one per input channel.
struct StageInput {
  Window rows;
  Window columns;
  int32_t pitch;
  int32_t num_positions;  // elements of a plane
};

__device__ __forceinline__ StageInput make_stage_input(const Params& params, const Stage& stage, const Phase& phase_h,
                                                       const Phase& phase_w) {
  const TileShape& shape = params.shape;
  StageInput input;
  input.rows = row_window(stage.num_kh, phase_h.shift_step, params.problem.h.position_step, shape.tile_h);
  input.columns = column_window(stage.num_kw, phase_w.shift_step, params.problem.w.position_step, shape.tile_w);
  input.pitch = input_pitch(input.columns.extent);
  input.num_positions = shape.tile_n * input.rows.extent * input.pitch;
  return input;
}

// Input coordinate of a window's first element: the tile's first position with the stage's lowest shift.
__device__ __forceinline__ int32_t first_coordinate(const Axis& axis, const Phase& phase, int32_t p_begin,
                                                    int32_t k_begin, int32_t num_k) {
  const int32_t lowest = phase.shift_step < 0 ? k_begin : k_begin + num_k - 1;
  return p_begin * axis.position_step + phase.first_shift - lowest * phase.shift_step;
}

__device__ __forceinline__ int32_t first_input_column(const Params& params, const Tile& tile, const Stage& stage,
                                                      const Phase& phase_w) {
  return first_coordinate(params.problem.w, phase_w, tile.p_w_begin, stage.kw_begin, stage.num_kw);
}

// Iterates over the stages of a tile. The cursor is in shared memory and one thread moves it, because in registers it
// would take space that every thread needs for accumulators.
template <bool kTapSums>
struct StageCursor {
  int32_t phase;
  int32_t num_kw;  // taps of the current W phase
  int32_t depth;
  int32_t ci;
  int32_t kh;
  int32_t kw;

  __device__ void start(const Params& params, const Tile& tile, const Phase& phase_h, const Phase* s_phases_w) {
    phase = -1;
    next_phase(params, tile, phase_h, s_phases_w);
  }

  // Returns the current stage and advances the cursor.
  __device__ Stage take(const Params& params, const Tile& tile, const Phase& phase_h, const Phase* s_phases_w) {
    Stage stage{};
    stage.end = phase >= tile.num_phases_w;
    if (stage.end) return stage;
    stage.phase = phase;
    if (num_kw == 0) {
      stage.last_of_phase = true;
      next_phase(params, tile, phase_h, s_phases_w);
      return stage;
    }
    stage.depth = depth;
    stage.ci_begin = ci;
    stage.num_ci = min(params.chunk_ci, params.group_c_in - ci);
    stage.kh_begin = kh;
    stage.num_kh = min(params.chunk_kh, phase_h.num_taps - kh);
    stage.kw_begin = kw;
    stage.num_kw = min(params.chunk_kw, num_kw - kw);
    const bool last_ci = ci + params.chunk_ci >= params.group_c_in;
    const bool all_taps = params.chunk_kh >= phase_h.num_taps && params.chunk_kw >= num_kw;
    stage.first_of_taps = ci == 0 || !(kTapSums || all_taps);
    stage.last_of_tap = last_ci;
    advance(params, tile, phase_h, s_phases_w);
    stage.last_of_phase = phase != stage.phase;
    return stage;
  }

 private:
  __device__ void advance(const Params& params, const Tile& tile, const Phase& phase_h, const Phase* s_phases_w) {
    if constexpr (kTapSums) {
      ci += params.chunk_ci;
      if (ci < params.group_c_in) return;
      ci = 0;
      if (--kw >= 0) return;
      kw = num_kw - 1;
      if (--kh >= 0) return;
      kh = phase_h.num_taps - 1;
      if (--depth >= 0) return;
    } else {
      kw += params.chunk_kw;
      if (kw < num_kw) return;
      kw = 0;
      kh += params.chunk_kh;
      if (kh < phase_h.num_taps) return;
      kh = 0;
      ci += params.chunk_ci;
      if (ci < params.group_c_in) return;
    }
    next_phase(params, tile, phase_h, s_phases_w);
  }

  __device__ void next_phase(const Params& params, const Tile& tile, const Phase& phase_h, const Phase* s_phases_w) {
    ++phase;
    if (phase >= tile.num_phases_w) return;
    num_kw = s_phases_w[phase].num_taps;
    ci = 0;
    depth = kTapSums ? params.depth_taps.value - 1 : 0;
    kh = kTapSums ? phase_h.num_taps - 1 : 0;
    kw = kTapSums ? num_kw - 1 : 0;
  }
};

}  // namespace convt::simt
