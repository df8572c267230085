// Output phases and their taps, per axis. Shared by the planner (host) and the kernels (device).
//
// Weight tap k maps input coordinate i to output coordinate o if
//     o = i * stride - padding + k * dilation.
// Write o = p * stride + phase with 0 <= phase < stride. Then tap k contributes to every o of that phase or to none. If
// it contributes, i = p + shift with the integer
//     shift = (phase + padding - k * dilation) / stride.
// (In a problem of problem/adjoint.h, i = p * position_step + shift, and a negative dilation makes shift ascend.)
// The taps of a phase are an arithmetic progression: k ascends by stride / g while shift descends by dilation / g,
// where g = gcd(stride, dilation). The outputs of a phase without taps are the bias. (The residue (o + padding) mod
// stride used in textbooks is (phase + padding) mod stride here. Counting from the output's own origin makes every
// phase of a tile start at the same p.)
#pragma once

#include <cstdint>

#include "problem/problem.h"

#ifdef __CUDACC__
#define CONVT_HOST_DEVICE __host__ __device__
#else
#define CONVT_HOST_DEVICE
#endif

namespace convt {

// Tap t (0 <= t < num_taps) of a phase: k = first_tap + t * tap_step,
// i = p * position_step + first_shift - t * shift_step.
struct Phase {
  int32_t num_taps;
  int32_t first_tap;
  int32_t tap_step;
  int32_t first_shift;
  int32_t shift_step;
};

CONVT_HOST_DEVICE inline int32_t greatest_common_divisor(int32_t a, int32_t b) {
  while (b != 0) {
    const int32_t r = a % b;
    a = b;
    b = r;
  }
  return a < 0 ? -a : a;
}

CONVT_HOST_DEVICE inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
CONVT_HOST_DEVICE inline int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

CONVT_HOST_DEVICE inline int64_t round_up(int64_t a, int32_t b) { return (a + b - 1) / b * b; }
CONVT_HOST_DEVICE inline int32_t round_up(int32_t a, int32_t b) { return (a + b - 1) / b * b; }

// The remainder in [0, b), also of negative numbers.
CONVT_HOST_DEVICE inline int32_t modulo(int64_t a, int32_t b) { return static_cast<int32_t>((a % b + b) % b); }

CONVT_HOST_DEVICE inline int32_t num_phases(const Axis& axis) {
  return axis.stride < axis.out ? axis.stride : axis.out;
}

// Number of positions p of a phase: outputs phase, phase + stride, ... below axis.out. May be 0.
CONVT_HOST_DEVICE inline int32_t num_positions(const Axis& axis, int32_t phase) {
  return axis.out > phase ? ceil_div(axis.out - phase, axis.stride) : 0;
}

CONVT_HOST_DEVICE inline Phase make_phase(const Axis& axis, int32_t phase) {
  const int32_t g = greatest_common_divisor(axis.stride, axis.dilation);
  const int32_t tap_step = axis.stride / g;
  const int32_t limit = tap_step < axis.kernel ? tap_step : axis.kernel;
  int32_t numerator = phase + axis.padding;
  for (int32_t k = 0; k < limit; ++k, numerator -= axis.dilation) {
    if (numerator % axis.stride == 0) {
      return Phase{(axis.kernel - 1 - k) / tap_step + 1, k, tap_step, numerator / axis.stride, axis.dilation / g};
    }
  }
  return Phase{0, 0, tap_step, 0, axis.dilation / g};
}

// Phase::shift_step, which is the same for all phases, without a search for taps.
CONVT_HOST_DEVICE inline int32_t shift_step(const Axis& axis) {
  return axis.dilation / greatest_common_divisor(axis.stride, axis.dilation);
}

// First of `stride` consecutive taps that map to each output at most once, and to all outputs except the first ones of
// the axis; -1 if there are none. Tap k of input i maps to output i * stride - padding + k * dilation.
inline int32_t first_covering_tap(const Axis& axis) {
  const int64_t beyond = int64_t{axis.padding} + axis.out - int64_t{axis.in} * axis.stride;
  const int64_t tap = beyond > 0 ? ceil_div(beyond, int64_t{axis.dilation}) : 0;
  const bool once = axis.dilation == 1 || axis.stride == 1;
  return once && tap <= axis.kernel - axis.stride ? static_cast<int32_t>(tap) : -1;
}

// Number of outputs to which these taps do not map.
inline int32_t num_uncovered(const Axis& axis) {
  const int64_t first = int64_t{first_covering_tap(axis)} * axis.dilation - axis.padding;
  return static_cast<int32_t>(first < 0 ? 0 : first < axis.out ? first : axis.out);
}

// Maximum number of taps of a phase.
CONVT_HOST_DEVICE inline int32_t max_taps(const Axis& axis) {
  return ceil_div(axis.kernel, axis.stride / greatest_common_divisor(axis.stride, axis.dilation));
}

}  // namespace convt
