// The mma engine's kernel for tiles of whole rows (mma_sm90a/rows.cuh): its launch, on the layout of the other one.
#pragma once

#include "mma_sm90a/layout.h"
#include "problem/problem.h"

namespace convt {

// The tile of whole rows.
struct MmaRowsTile {
  int32_t instance;  // index into kMmaRowsInstances
  int32_t warps;     // that multiply
  int32_t tile_h;    // rows of positions;
  int32_t block_co;  // result channels of a pass
  int32_t slots;     // staged tiles
  int32_t padding;   // sectors behind a staged channel, so that channels meet different banks
  bool interleaved;  // the CTAs of a pass take turns, instead of each having neighbouring tiles
  int32_t blocks_per_pass;

  // What tells it from other tiles of the kernel, and what people are told of it.
  template <typename Visitor>
  void fields(Visitor&& field) const {
    field("block_co", block_co);
    field("tile_h", tile_h);
    field("warps", warps);
    field("slots", slots);
    field("padding", padding);
    field("interleaved", interleaved);
    field("blocks_per_pass", blocks_per_pass);
  }
};

inline constexpr int32_t kMaxMmaRowsWarps = 16;  // of a CTA
inline constexpr int32_t kMmaRowsStorers = 2;  // of these

// Groups of loads that are on their way together.
CONVT_HOST_DEVICE constexpr int32_t mma_rows_batch(int32_t element_bytes) { return element_bytes == 4 ? 4 : 3; }

inline constexpr int32_t kMmaRowsRun = 2;  // taps of a run, at most

// A run of taps along W.
struct MmaRun {
  int32_t first;
  int32_t taps;
};

// Run number n.
CONVT_HOST_DEVICE inline MmaRun mma_run(const ThinAxis& w, int32_t n) {
  MmaRun run{0, 0};
  for (int32_t number = 0;; ++number) {
    run.first += run.taps;
    for (run.taps = 1; run.taps < kMmaRowsRun && run.first + run.taps < w.num_taps; ++run.taps) {
      if (w.offset[run.first + run.taps] != w.offset[run.first] - run.taps) break;
    }
    if (number == n) return run;
  }
}

// The layout of a plan, or false where it is illegal. Does not ask whether the device has so much shared memory.
bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaLayout* layout);

}  // namespace convt
