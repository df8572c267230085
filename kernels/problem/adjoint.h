// The gradient of the input as a problem of the forward's kind, for a kernel that computes either.
//     grad_x[n, ci, ih, iw] = sum grad_y[n, co, ih * stride - padding + kh * dilation, ...] * w[ci, co, kh, kw]
// Its input is grad_y, its output grad_x, the weight's two channel axes change places. All outputs are one phase, whose
// position p = ih reads input coordinate p * stride + shift; the shift goes up with the tap, as if dilation were
// negative: shift = -padding - kh * (-dilation).
#pragma once

#include "problem/problem.h"

namespace convt {

inline Axis adjoint_axis(const Axis& axis) {
  return Axis{axis.out, axis.in, axis.kernel, 1, -axis.padding, -axis.dilation, axis.stride};
}

// Channels, axes and strides of the gradient of the input. Weight (co, ci) of a group lies at co * w_stride[0] +
// ci * w_stride[1] from the group's first, and groups lie c_in / groups of the original's w_stride[0] apart.
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
