// The matrix product that a problem is, for the families that compute it as one.
// Must not know: torch, CUDA, any family.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

// The GEMM of a direction, per group, and its positions.
struct GemmShape {
  int32_t k_channels, n_channels;
  int32_t positions_h, positions_w;  // of the result's first phase
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

}  // namespace convt
