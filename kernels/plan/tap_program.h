// The result of a tensor-core engine as a sum over taps. Each tap reads a shifted window of the source.
//
//     forward:    source = input,       result = output, one set of taps per output phase
//     grad_input: source = grad_output, result = grad_input, one result phase; taps are grouped by the residue
//                 of the source coordinate modulo the stride, and each residue has its own window ("sub-tile")
//
// In a tile that starts at position p, element e of a window is source coordinate (p + shift + e) * step + residue.
// The taps of a run are a product of two arithmetic progressions, so a kernel iterates over them with two additions.
// Called by: plan/ and launch/ of the engines that pack weights in its order (flat, patch, rows, nhwc). Must not know:
// torch, CUDA, tiles.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The GEMM of a direction, per group, and its positions.
struct GemmShape {
  int32_t k_channels, n_channels;
  int32_t positions_h, positions_w;  // first phase of the result
  int32_t source_h, source_w, result_h, result_w;
  int32_t result_step_h, result_step_w;
};

inline GemmShape make_gemm_shape(const ConvTProblem& problem) {
  const auto c_in = static_cast<int32_t>(problem.c_in / problem.groups);
  const auto c_out = static_cast<int32_t>(problem.c_out / problem.groups);
  const Axis &h = problem.h, &w = problem.w;
  if (problem.direction == Direction::kForward) {
    return GemmShape{c_in,     c_out,   num_positions(h, 0), num_positions(w, 0), h.in, w.in, h.out, w.out,
                     h.stride, w.stride};
  }
  return GemmShape{c_out, c_in, h.in, w.in, h.out, w.out, h.in, w.in, 1, 1};
}

inline constexpr int32_t kMaxWindows = 16;
inline constexpr int32_t kMaxRuns = 64;
inline constexpr int32_t kMaxProgramTaps = 1 << 20;  // more than any engine multiplies
inline constexpr int32_t kMaxProgramStride = 1 << 12;  // with few phases, a larger stride means a small output

struct AxisWindow {
  int32_t shift;
  int32_t residue;
};

// Taps (kh + i * kh_step, kw + j * kw_step), i < num_h, j < num_w. Tap (i, j) reads the window of sub-tile `sub`,
// starting at its element (row + i * row_step, column + j * column_step).
struct TapRun {
  int32_t kh, kw, kh_step, kw_step;
  int32_t num_h, num_w;
  int32_t row, column, row_step, column_step;
  int32_t sub;
  int32_t first_tap;  // index among the packed taps of its H phase
};

struct TapProgram {
  int32_t source_step_h, source_step_w;
  int32_t phases_h, phases_w;  // of the result
  int32_t sub_h, sub_w;  // windows per tile; their product is the number of sub-tiles
  AxisWindow window_h[kMaxWindows];  // forward: per H phase; grad_input: per residue
  AxisWindow window_w[kMaxWindows];
  int32_t extra_h, extra_w;  // elements by which a window is longer than its tile
  int32_t num_runs;  // forward: index phase_h * phases_w + phase_w; grad_input: all runs
  TapRun runs[kMaxRuns];
  int32_t num_taps[kMaxWindows];  // per H phase
  int32_t taps_before[kMaxWindows];  // exclusive prefix sum over H phases
  int32_t total_taps;
};

// Returns false if a limit above is exceeded: 16 phases or residues per axis, 64 in all, the number of taps, or the
// stride of the forward pass. With `apart` each tap of grad_input is a run with its own window.
bool make_tap_program(const ConvTProblem& problem, TapProgram* program, bool apart = false);

}  // namespace convt
