#include "problem/volume.h"

namespace convt {
namespace {

bool is_patch(const Axis& axis) {
  return axis.kernel == axis.stride && (axis.dilation == 1 || axis.kernel == 1) && axis.padding == 0 &&
         axis.out == int64_t{axis.in} * axis.kernel;
}

}  // namespace

ConvTProblem without_depth(const ConvTProblem& problem) {
  const Axis& d = problem.d;
  if (!is_volume(problem) || d.kernel != 1 || d.stride != 1 || d.padding != 0 || d.out != d.in) return problem;
  ConvTProblem flat = problem;
  flat.d = Axis{1, 1, 1, 1, 0, 1};
  flat.x_plane = flat.w_plane = flat.y_plane = 0;
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
  if (!joined || !is_patch(h) || !fits_axis(rows, out, h.kernel, h.stride, 0, 1)) return problem;
  flat.h.in = static_cast<int32_t>(rows);
  flat.h.out = static_cast<int32_t>(out);
  return flat;
}

bool stack_planes(const ConvTProblem& problem, StackedProblem* stacked) {
  static_cast<ConvTProblem&>(*stacked) = problem;
  stacked->planes = 1;
  stacked->plane_rows = problem.h.kernel;
  stacked->x_batch = problem.x_stride[0];
  stacked->y_batch = problem.y_stride[0];
  if (!is_volume(problem)) return true;
  const Axis &d = problem.d, &h = problem.h;
  const int64_t rows = int64_t{d.kernel} * h.kernel, out = h.in * rows;
  if (!is_patch(d) || !is_patch(h) || !fits_axis(h.in, out, rows, rows, 0, 1)) return false;
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

}  // namespace convt
