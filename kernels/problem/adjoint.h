// The gradient of the input as a forward problem, so that one kernel can compute both.
//     grad_x[n, ci, ih, iw] = sum grad_y[n, co, ih * stride - padding + kh * dilation, ...] * w[ci, co, kh, kw]
// Its input is grad_y, its output is grad_x, and the weight's two channel axes are swapped. All outputs belong to one
// phase. Position p = ih reads input coordinate p * stride + shift. The shift increases with the tap, as with a
// negative dilation: shift = -padding - kh * (-dilation).
#pragma once

#include "problem/problem.h"

namespace convt {

inline Axis adjoint_axis(const Axis& axis) {
  return Axis{axis.out, axis.in, axis.kernel, 1, -axis.padding, -axis.dilation, axis.stride};
}

// Channels, axes and strides of the gradient of the input. Weight (co, ci) of a group is at offset co * w_stride[0] +
// ci * w_stride[1] in the group. Groups are c_in / groups of the original's w_stride[0] apart.
inline ConvTProblem adjoint_problem(const ConvTProblem& problem) {
  ConvTProblem adjoint = problem;
  adjoint.c_in = problem.c_out;
  adjoint.c_out = problem.c_in;
  adjoint.h = adjoint_axis(problem.h);
  adjoint.w = adjoint_axis(problem.w);
  adjoint.has_bias = false;
  adjoint.w_stride[0] = problem.w_stride[1];
  adjoint.w_stride[1] = problem.w_stride[0];
  for (int i = 0; i < 4; ++i) {
    adjoint.x_stride[i] = problem.y_stride[i];
    adjoint.y_stride[i] = problem.x_stride[i];
  }
  return adjoint;
}

}  // namespace convt
