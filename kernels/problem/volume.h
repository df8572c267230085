// Three-dimensional problems as two-dimensional ones. Must not know: torch, CUDA, any family.
#pragma once

#include "problem/problem.h"
#include "problem/shapes.h"

namespace convt {

// Returns an equal problem without a depth axis if there is one: taps of depth 1 with stride 1, if planes of input and
// output are either further images, or further rows of the same image. Otherwise returns the problem.
ConvTProblem without_depth(const ConvTProblem& problem);

// A problem whose kernel equals its stride, with planes as images: image i is plane i % planes of batch element
// i / planes. Taps along depth precede those along H: tap row t is row t % plane_rows of plane t / plane_rows.
struct StackedProblem : ConvTProblem {
  int32_t planes;            // of the input per batch element
  int32_t plane_rows;        // tap rows per plane of the output
  int64_t x_batch, y_batch;  // elements between batch elements; x_stride[0] and y_stride[0] are between images
};

// Two-dimensional problems have one plane. Returns false if the tap rows of a three-dimensional weight do not have one
// stride, or if its depth overlaps.
bool stack_planes(const ConvTProblem& problem, StackedProblem* stacked);

}  // namespace convt
