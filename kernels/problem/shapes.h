// The three tensors of a problem: their sizes, the strides that they have where they are dense, how far they reach, and
// what they are to each other where the kernel is the stride.
#pragma once

#include "problem/problem.h"

namespace convt {

// [batch, c_in, h_in, w_in], [c_in, c_out / groups, k_h, k_w] and [batch, c_out, h_out, w_out].
struct Shapes {
  int64_t x[4];
  int64_t w[4];
  int64_t y[4];
};

inline int64_t weight_elements(const ConvTProblem& problem) {
  return problem.c_in * (problem.c_out / problem.groups) * problem.h.kernel * problem.w.kernel;
}

inline Shapes shapes_of(const ConvTProblem& problem) {
  const int64_t group_c_out = problem.c_out / problem.groups;
  return Shapes{{problem.batch, problem.c_in, problem.h.in, problem.w.in},
                {problem.c_in, group_c_out, problem.h.kernel, problem.w.kernel},
                {problem.batch, problem.c_out, problem.h.out, problem.w.out}};
}

// Strides of a dense tensor: NCHW or channels_last. Lists are 4 long.
inline void fill_dense_strides(const int64_t* sizes, bool channels_last, int64_t* strides) {
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  const int64_t dense[4] = {c * h * w, channels_last ? 1 : h * w, channels_last ? w * c : w, channels_last ? c : 1};
  for (int i = 0; i < 4; ++i) strides[i] = dense[i];
}

// The stride of an axis of one element says nothing, and may be any number. One that a real tensor hardly has becomes a
// small one, so that arithmetic with it has a meaning wherever a problem goes; it is no 1, which would tell of
// neighbours (is_channels_last()), and whole vectors. Of real tensors' strides none changes.
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
}

// Elements from a tensor's first to beyond its last, or more. Not exact, as it counts the strides of axes of one
// element too: to be compared with what a number can hold.
inline double reach_of(const int64_t* sizes, const int64_t* strides) {
  double reach = 0;
  for (int i = 0; i < 4; ++i) {
    const auto stride = static_cast<double>(strides[i]);
    reach += static_cast<double>(sizes[i]) * (stride < 0 ? -stride : stride);
  }
  return reach;
}

// How far the weights of a group reach.
inline double weight_reach(const ConvTProblem& problem) {
  const int64_t sizes[4] = {problem.c_in / problem.groups, problem.c_out / problem.groups, problem.h.kernel,
                            problem.w.kernel};
  return reach_of(sizes, problem.w_stride);
}

// The kernel is the stride, so that a position's results are a patch that no other adds to.
inline bool is_nonoverlapping(const ConvTProblem& problem) {
  const Axis* const axes[] = {&problem.h, &problem.w};
  for (const Axis* axis : axes) {
    const bool apart = axis->kernel == axis->stride && (axis->dilation == 1 || axis->kernel == 1);
    if (!apart || axis->padding != 0 || axis->out != int64_t{axis->in} * axis->kernel) return false;
  }
  return true;
}

// Positions of an image of the input are one run of every channel.
inline bool has_runs_of_positions(const ConvTProblem& problem) {
  const int64_t* x = problem.x_stride;
  return (problem.w.in == 1 || x[3] == 1) && (problem.h.in == 1 || x[2] == problem.w.in);
}

}  // namespace convt
