#include "problem/volume.h"

#include <algorithm>

#include "problem/adjoint.h"

namespace convt {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The problem of one plane.
ConvTProblem plane_problem(const ConvTProblem& problem) {
  ConvTProblem plane = problem;
  plane.d = Axis{1, 1, 1, 1, 0, 1};
  plane.x_plane = plane.w_plane = plane.y_plane = 0;
  return plane;
}

}  // namespace

ConvTProblem without_depth(const ConvTProblem& problem) {
  const Axis& d = problem.d;
  if (!is_volume(problem) || d.kernel != 1 || d.stride != 1 || d.padding != 0 || d.out != d.in) return problem;
  ConvTProblem flat = plane_problem(problem);
  const bool single = problem.batch == 1;
  if (single || (problem.x_stride[0] == d.in * problem.x_plane && problem.y_stride[0] == d.in * problem.y_plane)) {
    flat.batch = problem.batch * d.in;
    flat.x_stride[0] = problem.x_plane;
    flat.y_stride[0] = problem.y_plane;
    return flat;
  }
  const Axis& h = problem.h;
  const bool joined = problem.x_plane == h.in * problem.x_stride[2] && problem.y_plane == h.out * problem.y_stride[2];
  const int64_t rows = int64_t{d.in} * h.in, out = int64_t{d.in} * h.out;
  if (!joined || !is_nonoverlapping(h) || !fits_axis(rows, out, h.kernel, h.stride, 0, 1)) return problem;
  flat.h.in = static_cast<int32_t>(rows);
  flat.h.out = static_cast<int32_t>(out);
  return flat;
}

bool stack_planes(const ConvTProblem& problem, StackedProblem* stacked) {
  static_cast<ConvTProblem&>(*stacked) = problem;
  stacked->planes = 1;
  stacked->paired = false;
  stacked->plane_rows = problem.h.kernel;
  stacked->x_batch = problem.x_stride[0];
  stacked->y_batch = problem.y_stride[0];
  if (!is_volume(problem)) return true;
  const Axis &d = problem.d, &h = problem.h;
  const int64_t rows = int64_t{d.kernel} * h.kernel, out = h.in * rows;
  if (!is_nonoverlapping(d) || !is_nonoverlapping(h) || !fits_axis(h.in, out, rows, rows, 0, 1)) return false;
  if (d.kernel > 1 && h.kernel > 1 && problem.w_plane != h.kernel * problem.w_stride[2]) return false;
  if (h.kernel == 1) stacked->w_stride[2] = problem.w_plane;
  stacked->d = Axis{1, 1, 1, 1, 0, 1};
  stacked->planes = d.in;
  stacked->batch = problem.batch * d.in;
  stacked->x_stride[0] = problem.x_plane;
  stacked->y_stride[0] = d.kernel * problem.y_plane;
  stacked->h.kernel = stacked->h.stride = static_cast<int32_t>(rows);
  stacked->h.out = static_cast<int32_t>(out);
  stacked->h.dilation = 1;
  return true;
}

bool pair_channels(StackedProblem* stacked) {
  Axis &h = stacked->h, &w = stacked->w;
  if (stacked->direction != Direction::kForward || h.kernel != 2 * stacked->plane_rows) return false;
  if (is_channels_last(stacked->y_stride)) {
    if (w.kernel != 2 || stacked->groups > 1 || stacked->y_stride[3] != stacked->c_out) return false;
    stacked->y_stride[3] *= 2;
    w.kernel = w.stride = 1;
    w.out = w.in;
  } else {
    if (stacked->w_stride[1] != 2 * stacked->w_plane || stacked->y_stride[1] % 2 != 0) return false;
    stacked->w_stride[1] = stacked->w_plane;
    stacked->y_stride[1] /= 2;
    h.kernel = h.stride = stacked->plane_rows;
    h.out /= 2;
  }
  stacked->paired = true;
  stacked->c_out *= 2;
  return true;
}

bool join_planes(const ConvTProblem& problem, JoinedProblem* joined) {
  static_cast<ConvTProblem&>(*joined) = problem;
  joined->planes = PlaneRows{std::max(problem.h.in, 1), problem.h.kernel, 0, 0};
  if (!is_volume(problem)) return true;
  const Axis &d = problem.d, &h = problem.h;
  const int64_t in = int64_t{d.in} * h.in, out = int64_t{d.out} * h.out, taps = int64_t{d.kernel} * h.kernel;
  if (!is_nonoverlapping(d) || !is_nonoverlapping(h) || !fits_axis(in, out, taps, h.stride, 0, 1)) return false;
  const auto adjoin = [](int32_t planes, int64_t plane, int32_t rows, int64_t* row) {
    if (rows == 1) *row = plane;
    return planes == 1 || plane == rows * *row;
  };
  if (!adjoin(d.in, problem.x_plane, h.in, &joined->x_stride[2]) ||
      !adjoin(d.kernel, problem.w_plane, h.kernel, &joined->w_stride[2]) ||
      !adjoin(d.out, problem.y_plane, h.out, &joined->y_stride[2])) {
    return false;
  }
  joined->planes.row_gap = (d.kernel - 1) * h.out;
  joined->planes.tap_gap = h.out - h.kernel;
  static_cast<ConvTProblem&>(*joined) = plane_problem(*joined);
  joined->h = Axis{static_cast<int32_t>(in), static_cast<int32_t>(out), static_cast<int32_t>(taps), h.stride, 0, 1};
  return true;
}

std::vector<PlaneSlice> plane_slices(const ConvTProblem& problem) {
  const Axis d = problem.direction == Direction::kForward ? problem.d : adjoint_axis(problem.d);
  std::vector<PlaneSlice> slices;
  for (int32_t phase = 0; phase < num_phases(d); ++phase) {
    const Phase taps = make_phase(d, phase);
    const int32_t positions = num_positions(d, phase);
    // Tap t reads the source at position p if p * position_step + first_shift - t * shift_step is in 0 .. in - 1.
    const auto plane = [&](int32_t t) { return taps.first_shift - int64_t{t} * taps.shift_step; };
    const auto begin = [&](int32_t t) {
      return std::clamp<int64_t>(-floor_div(plane(t), d.position_step), 0, positions);
    };
    const auto end = [&](int32_t t) {
      return std::clamp<int64_t>(floor_div(d.in - 1 - plane(t), d.position_step) + 1, begin(t), positions);
    };
    std::vector<int64_t> limits{0, positions};
    for (int32_t t = 0; t < taps.num_taps; ++t) limits.push_back(begin(t)), limits.push_back(end(t));
    std::sort(limits.begin(), limits.end());
    limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
    for (size_t i = 0; i + 1 < limits.size(); ++i) {
      const auto p = static_cast<int32_t>(limits[i]);
      int32_t first = 0;
      while (first < taps.num_taps && (p < begin(first) || p >= end(first))) ++first;
      int32_t last = first;
      while (last < taps.num_taps && p >= begin(last) && p < end(last)) ++last;
      slices.push_back({p * d.stride + phase, d.stride, static_cast<int32_t>(limits[i + 1] - p),
                        static_cast<int32_t>(int64_t{p} * d.position_step + plane(first)), d.position_step,
                        -taps.shift_step, taps.first_tap + first * taps.tap_step, taps.tap_step, last - first});
    }
  }
  return slices;
}

ConvTProblem slice_problem(const ConvTProblem& problem, const PlaneSlice& slice, bool taps_as_channels) {
  ConvTProblem flat = plane_problem(problem);
  const bool forward = problem.direction == Direction::kForward;
  flat.batch = slice.num_planes;
  flat.x_stride[0] = (forward ? slice.source_step : slice.plane_step) * problem.x_plane;
  flat.y_stride[0] = (forward ? slice.plane_step : slice.source_step) * problem.y_plane;
  if (taps_as_channels) (forward ? flat.c_in : flat.c_out) *= slice.num_taps;
  return flat;
}

ConvTProblem pairs_problem(const ConvTProblem& problem, const PlanePairs& pairs) {
  ConvTProblem flat = plane_problem(problem);
  flat.batch *= pairs.count;
  flat.x_stride[0] = problem.x_plane;
  flat.y_stride[0] = problem.d.stride * problem.y_plane;
  return flat;
}

PlanePairs plane_pairs(const Axis& d, int32_t tap) {
  const int64_t first = int64_t{tap} * d.dilation - d.padding;  // plane of grad_output for plane 0 of the input
  const int64_t begin = std::clamp<int64_t>(-floor_div(first, d.stride), 0, d.in);
  const int64_t end = std::clamp<int64_t>(floor_div(d.out - 1 - first, d.stride) + 1, begin, d.in);
  return {static_cast<int32_t>(begin), static_cast<int32_t>(begin * d.stride + first),
          static_cast<int32_t>(end - begin)};
}

}  // namespace convt
