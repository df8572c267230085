// How long plans of the NHWC engine take (estimate.cpp), and what of a problem that depends on.
// Called by: nhwc_sm90a/plan.cpp. Must not know: torch, CUDA.
#pragma once

#include <cstdint>

#include "nhwc_sm90a/instances.h"
#include "plan/device.h"
#include "plan/plan.h"
#include "plan/tap_program.h"
#include "problem/problem.h"

namespace convt {

// What of a tile follows from the problem alone.
struct NhwcWork {
  TapProgram program;
  bool box_per_tap;  // each tap has a window of its own
  int32_t positions_h, positions_w;  // of a phase, at most
  int32_t windows;                   // of a tile
  int32_t extra_h, extra_w;          // of all windows
  double taps;                       // of a tile, on average
  int32_t most_taps;                 // of a window
  int64_t k_channels, n_channels;
};

// Whether results are stored by rows: those of NCHW, and of channels_last where pixels begin between multiples of 16
// bytes, so that a thread could store its channels one by one alone.
bool nhwc_has_rows(const ConvTProblem& problem);

// Fills compute_us, memory_us and estimate_us of a plan that is laid out.
void estimate_nhwc(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                   const NhwcWork& work, Plan* plan);

// No plan of a tile has a shorter estimate, whatever its splits, parts and stores. `plan`: what is known before it is
// laid out.
double nhwc_bound_us(const ConvTProblem& problem, const DeviceInfo& device, const NhwcInstance& instance,
                     const NhwcWork& work, const Plan& plan);

}  // namespace convt
