// The three tensors of a problem: sizes, dense strides, extents in memory, and properties of layers with kernel =
// stride.
#pragma once

#include "problem/problem.h"

namespace convt {

// Without the depth axis: [batch, c_in, h_in, w_in], [c_in, c_out / groups, k_h, k_w] and [batch, c_out, h_out, w_out].
struct Shapes {
  int64_t x[4];
  int64_t w[4];
  int64_t y[4];
};

inline int64_t weight_elements(const ConvTProblem& problem) {
  return problem.c_in * (problem.c_out / problem.groups) * problem.d.kernel * problem.h.kernel * problem.w.kernel;
}

inline Shapes shapes_of(const ConvTProblem& problem) {
  const int64_t group_c_out = problem.c_out / problem.groups;
  return Shapes{{problem.batch, problem.c_in, problem.h.in, problem.w.in},
                {problem.c_in, group_c_out, problem.h.kernel, problem.w.kernel},
                {problem.batch, problem.c_out, problem.h.out, problem.w.out}};
}

// Strides of a dense tensor: NCHW or channels_last. Lists have 4 elements. Returns the stride between its planes.
inline int64_t fill_dense_strides(const int64_t* sizes, bool channels_last, int64_t* strides, int64_t planes = 1) {
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  const int64_t dense[4] = {planes * c * h * w, channels_last ? 1 : planes * h * w, channels_last ? w * c : w,
                            channels_last ? c : 1};
  for (int i = 0; i < 4; ++i) strides[i] = dense[i];
  return h * w * (channels_last ? c : 1);
}

// The stride of an axis of size 1 is irrelevant and may be any number. Extreme strides of such axes are replaced by a
// small one, so that arithmetic with them cannot overflow. The replacement is not 1, which would indicate contiguous
// elements (is_channels_last()), and is a multiple of vectors. Strides of other axes do not change.
inline void settle_strides(ConvTProblem* problem) {
  constexpr int64_t kSettled = 64, kMost = INT32_MAX;
  const Shapes shapes = shapes_of(*problem);
  const auto settle = [](const int64_t* sizes, int64_t* strides) {
    for (int i = 0; i < 4; ++i) {
      if (sizes[i] == 1 && (strides[i] > kMost || strides[i] < -kMost)) strides[i] = kSettled;
    }
  };
  settle(shapes.x, problem->x_stride);
  settle(shapes.w, problem->w_stride);
  settle(shapes.y, problem->y_stride);
  if (problem->d.in == 1) problem->x_plane = 0;
  if (problem->d.kernel == 1) problem->w_plane = 0;
  if (problem->d.out == 1) problem->y_plane = 0;
}

// Upper bound of a tensor's extent in memory, in elements. It includes the strides of axes of size 1. For comparison
// with integer limits.
inline double reach_of(const int64_t* sizes, const int64_t* strides) {
  double reach = 0;
  for (int i = 0; i < 4; ++i) {
    const auto stride = static_cast<double>(strides[i]);
    reach += static_cast<double>(sizes[i]) * (stride < 0 ? -stride : stride);
  }
  return reach;
}

// Extent of the weights of a group.
inline double weight_reach(const ConvTProblem& problem) {
  const int64_t sizes[4] = {problem.c_in / problem.groups, problem.c_out / problem.groups, problem.h.kernel,
                            problem.w.kernel};
  return reach_of(sizes, problem.w_stride);
}

// Whether the kernel equals the stride, so that each position produces a separate patch of results.
inline bool is_nonoverlapping(const Axis& axis) {
  return axis.kernel == axis.stride && (axis.dilation == 1 || axis.kernel == 1) && axis.padding == 0 &&
         axis.out == int64_t{axis.in} * axis.kernel;
}
inline bool is_nonoverlapping(const ConvTProblem& problem) {
  return is_nonoverlapping(problem.h) && is_nonoverlapping(problem.w);
}

// Whether the positions of an image are contiguous in every channel of the input.
inline bool has_runs_of_positions(const ConvTProblem& problem) {
  const int64_t* x = problem.x_stride;
  return (problem.w.in == 1 || x[3] == 1) && (problem.h.in == 1 || x[2] == problem.w.in);
}

}  // namespace convt
