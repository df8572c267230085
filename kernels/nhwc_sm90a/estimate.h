// Cost model of the nhwc family (estimate.cpp), and its inputs.
// Called by: nhwc_sm90a/plan.cpp. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "nhwc_sm90a/instances.h"
#include "plan/device.h"
#include "plan/plan.h"
#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// Properties of a problem that are the same for all tiles.
struct NhwcWork {
  TapProgram program;
  bool box_per_tap;  // each tap has its own window
  int32_t step_n, step_h;            // source images and rows per position (problem/volume.h)
  int32_t positions_h, positions_w;  // per phase, at most
  int32_t windows;                   // per tile
  int32_t extra_h, extra_w;          // over all windows
  double taps;                       // per tile, on average
  int32_t most_taps;                 // per window
  int64_t k_channels, n_channels;
};

// Whether results are stored by rows: in NCHW, and in channels_last if pixels are not aligned to 16 bytes, because a
// thread could then only store channels one by one.
bool nhwc_has_rows(const ConvTProblem& problem);

// Sets compute_us, memory_us and estimate_us of a plan with a complete layout.
void estimate_nhwc(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                   const NhwcWork& work, Plan* plan);

// Lower bound of the estimates of a tile, for all splits and kinds of stores. `plan` has no layout yet.
double nhwc_bound_us(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                     const NhwcWork& work, const Plan& plan);

}  // namespace convt
