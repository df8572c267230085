#include "plan/tap_program.h"

#include <algorithm>

namespace convt {
namespace {

int32_t floor_div(int32_t a, int32_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// The taps of one axis that share a window.
struct AxisRun {
  int32_t k, k_step, num;
  int32_t shift, shift_step;  // of tap k; from one tap to the next
  int32_t residue;
};

// Forward: run i is output phase i, with ascending k and descending shift.
int32_t forward_runs(const Axis& axis, AxisRun* runs) {
  const int32_t count = num_phases(axis);
  if (count > kMaxWindows || axis.stride > kMaxProgramStride) return -1;
  for (int32_t phase = 0; phase < count; ++phase) {
    const Phase p = make_phase(axis, phase);
    runs[phase] = AxisRun{p.first_tap, p.tap_step, p.num_taps, p.first_shift, -p.shift_step, 0};
  }
  return count;
}

// grad_input: tap k reads source coordinate i * stride + e with e = k * dilation - padding.
int32_t residue_runs(const Axis& axis, bool apart, AxisRun* runs) {
  const int32_t g = greatest_common_divisor(axis.stride, axis.dilation);
  const int32_t k_step = apart ? axis.kernel : axis.stride / g;
  const int32_t count = std::min(k_step, axis.kernel);
  if (count > kMaxWindows) return -1;
  for (int32_t k = 0; k < count; ++k) {
    const int32_t e = k * axis.dilation - axis.padding;
    const int32_t shift = floor_div(e, axis.stride);
    runs[k] = AxisRun{k, k_step, (axis.kernel - 1 - k) / k_step + 1, shift, axis.dilation / g, e - shift * axis.stride};
  }
  return count;
}

int32_t lowest_shift(const AxisRun& run) { return run.shift + std::min(0, (run.num - 1) * run.shift_step); }
int32_t highest_shift(const AxisRun& run) { return run.shift + std::max(0, (run.num - 1) * run.shift_step); }

// One window per run, or with `shared` one window for all runs. Returns how much longer than the tile the windows are.
int32_t make_windows(const AxisRun* runs, int32_t count, bool shared, AxisWindow* windows) {
  int32_t extra = 0, lowest = INT32_MAX, highest = INT32_MIN;
  for (int32_t i = 0; i < count; ++i) {
    windows[i] = AxisWindow{0, runs[i].residue};
    if (runs[i].num == 0) continue;
    windows[i].shift = lowest_shift(runs[i]);
    extra = std::max(extra, highest_shift(runs[i]) - lowest_shift(runs[i]));
    lowest = std::min(lowest, lowest_shift(runs[i]));
    highest = std::max(highest, highest_shift(runs[i]));
  }
  if (!shared || lowest > highest) return extra;
  for (int32_t i = 0; i < count; ++i) windows[i].shift = lowest;
  return highest - lowest;
}

}  // namespace

bool make_tap_program(const ConvTProblem& problem, TapProgram* program, bool apart) {
  *program = TapProgram{};
  const bool forward = problem.direction == Direction::kForward;
  AxisRun runs_h[kMaxWindows], runs_w[kMaxWindows];
  const int32_t count_h = forward ? forward_runs(problem.h, runs_h) : residue_runs(problem.h, apart, runs_h);
  const int32_t count_w = forward ? forward_runs(problem.w, runs_w) : residue_runs(problem.w, apart, runs_w);
  if (count_h < 0 || count_w < 0 || count_h * count_w > kMaxRuns) return false;

  program->source_step_h = forward ? 1 : problem.h.stride;
  program->source_step_w = forward ? 1 : problem.w.stride;
  program->phases_h = forward ? count_h : 1;
  program->phases_w = forward ? count_w : 1;
  program->sub_h = forward ? 1 : count_h;
  program->sub_w = forward ? 1 : count_w;
  program->extra_h = make_windows(runs_h, count_h, false, program->window_h);
  program->extra_w = make_windows(runs_w, count_w, forward, program->window_w);

  for (int32_t i = 0; i < count_h; ++i) {
    const int32_t phase = forward ? i : 0;
    if (phase == i) program->taps_before[phase] = program->total_taps;
    for (int32_t j = 0; j < count_w; ++j) {
      TapRun& run = program->runs[program->num_runs++];
      const AxisRun &h = runs_h[i], &w = runs_w[j];
      run.kh = h.k;
      run.kw = w.k;
      run.kh_step = h.k_step;
      run.kw_step = w.k_step;
      run.num_h = h.num;
      run.num_w = w.num;
      run.row = h.shift - program->window_h[i].shift;
      run.column = w.shift - program->window_w[j].shift;
      run.row_step = h.shift_step;
      run.column_step = w.shift_step;
      run.sub = forward ? 0 : i * count_w + j;
      run.first_tap = program->num_taps[phase];
      if (run.num_h == 0 || run.num_w == 0) run.num_h = run.num_w = 0;
      if (program->total_taps + int64_t{run.num_h} * run.num_w > kMaxProgramTaps) return false;
      program->num_taps[phase] += run.num_h * run.num_w;
      program->total_taps += run.num_h * run.num_w;
    }
  }
  return true;
}

}  // namespace convt
