// Which results a tile owns, and the pipelines that the warps of a CTA share.
#pragma once

#include "ptx/mbarrier_sm90.cuh"
#include "ptx/wgmma_sm90a.cuh"
#include "wgmma_sm90a/params.h"

namespace convt::wgmma_sm90a {

struct Tile {
  int32_t channel_tile;  // kN result channels
  int32_t group;
  int32_t n_begin, p_h_begin, p_w_begin;  // images and positions
  int32_t phase_h;
  int32_t phase_w_begin;
};

// Neighbouring tiles share their source in L2: channel tiles first, then columns, phases, rows, groups, images.
__device__ __forceinline__ Tile tile_of(const Params& params, int32_t number) {
  Tile tile;
  auto next_digit = [&number](const Divisor& count) {
    int32_t digit;
    number = count(number, &digit);
    return digit;
  };
  tile.channel_tile = next_digit(params.channel_tiles);
  tile.p_w_begin = next_digit(params.w_tiles) * params.tile_w;
  tile.phase_w_begin = next_digit(params.w_splits) * params.split_phases;
  tile.phase_h = next_digit(params.h_phases);
  tile.p_h_begin = next_digit(params.h_tiles) * params.tile_h;
  tile.group = next_digit(params.group_tiles);
  tile.n_begin = number * params.tile_n;
  return tile;
}

// The runs of taps of W phase `phase` of a tile.
struct RunRange {
  int32_t begin, end;
};

__device__ __forceinline__ RunRange runs_of(const Params& params, const Tile& tile, int32_t phase) {
  const TapProgram& program = params.program;
  if (program.phases_h * program.phases_w == 1) return {0, program.num_runs};
  const int32_t phase_w = tile.phase_w_begin + phase;
  if (phase_w >= program.phases_w) return {0, 0};
  const int32_t run = tile.phase_h * program.phases_w + phase_w;
  return {run, run + 1};
}

// A ring of slots in shared memory with two barriers each: full (the producers have arrived) and empty (the consumers
// have).
class Ring {
 public:
  __device__ __forceinline__ Ring(uint32_t s_barriers, int32_t slots) : s_barriers_(s_barriers), slots_(slots) {}

  __device__ __forceinline__ uint32_t full() const { return s_barriers_ + 16 * slot_; }
  __device__ __forceinline__ uint32_t empty() const { return s_barriers_ + 16 * slot_ + 8; }
  __device__ __forceinline__ int32_t slot() const { return slot_; }
#ifdef CONVT_HAS_WGMMA
  __device__ __forceinline__ void wait_full() const { ptx::mbarrier_wait(full(), parity_); }
  // The first time around every slot is empty.
  __device__ __forceinline__ void wait_empty() const { ptx::mbarrier_wait(empty(), parity_ ^ 1); }
#endif
  __device__ __forceinline__ void advance() {
    if (++slot_ == slots_) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  uint32_t s_barriers_;
  int32_t slots_;
  int32_t slot_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace convt::wgmma_sm90a
