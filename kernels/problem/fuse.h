// W phases as output channels. If the stride divides the kernel and the dilation is 1, every W phase has the same
// number of taps. With positions counted from the padded output's edge, q = (o + padding) / stride, all phases also
// read the same input columns: tap t of any phase reads column q - t. So the problem is
//     y'[n, co * stride + v, oh, q] = sum x[n, ci, ih, q - t] * w[ci, co, kh, v + stride * t]
//     y[n, co, oh, q * stride + v - padding] = y'[n, co * stride + v, oh, q]
// a convolution of stride 1 with `stride` times the channels, then a pixel shuffle along W and a crop. A tile reads its
// input once for all phases.
#pragma once

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The stride must be a power of two, like the channels of a tile. 32 bits must represent the channels of y'.
inline bool can_fuse_phases(const ConvTProblem& problem) {
  const Axis& w = problem.w;
  constexpr int32_t kMostPhases = 16;
  return w.stride > 1 && w.stride <= kMostPhases && (w.stride & (w.stride - 1)) == 0 && w.dilation == 1 &&
         w.kernel % w.stride == 0 && problem.c_out < (int64_t{1} << 30) / w.stride;
}

// The problem y' above. x_stride and y_stride are those of the original. Weight (co * stride + v, t) is at offset co *
// w_stride[1] + v * (the original's w_stride[3]) + t * w_stride[3].
inline ConvTProblem fuse_phases(const ConvTProblem& problem) {
  ConvTProblem fused = problem;
  const int32_t stride = problem.w.stride;
  fused.c_out *= stride;
  fused.w = Axis{problem.w.in, ceil_div(problem.w.out + problem.w.padding, stride), problem.w.kernel / stride, 1, 0, 1};
  fused.w_stride[3] *= stride;
  return fused;
}

}  // namespace convt
