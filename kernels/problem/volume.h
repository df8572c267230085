// Three-dimensional problems as two-dimensional ones. Must not know: torch, CUDA, any family.
#pragma once

#include <vector>

#include "problem/phases.h"
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
  bool paired;  // see pair_channels()
};

// Two-dimensional problems have one plane. Returns false if the tap rows of a three-dimensional weight do not have one
// stride, or if its depth overlaps.
bool stack_planes(const ConvTProblem& problem, StackedProblem* stacked);

// Make two planes (NCDHW) or two columns (channels_last) of a patch channels of the output, so that few channels fill a
// tile of a forward pass. In NCDHW, channel 2 * c + p is channel c of plane p, and y_stride[1] is half of its value. In
// channels_last, channel p * channels + c is channel c of column p, and contiguous. Returns false, without a change,
// for other layers.
bool pair_channels(StackedProblem* stacked);

// The rows of all planes as rows of one image. Input row r and tap row t read row
//     r * stride - padding + t * dilation + after_row(r) + after_tap(t)
// of grad_output, where stride, padding and dilation are those of H. With one plane, nothing is added.
struct PlaneRows {
  int32_t input, taps;  // rows per plane
  int32_t row_gap, tap_gap;  // rows of grad_output to add per plane of the input, and per plane of taps

  CONVT_HOST_DEVICE int32_t after_row(int32_t row) const { return row / input * row_gap; }
  CONVT_HOST_DEVICE int32_t after_tap(int32_t tap) const { return tap / taps * tap_gap; }
};

// A problem whose h axis counts the rows of all planes. Its stride, padding and dilation are those within a plane.
struct JoinedProblem : ConvTProblem {
  PlaneRows planes;
};

// Returns false if the rows of a three-dimensional tensor do not have one stride, or if its kernel differs from its
// stride.
bool join_planes(const ConvTProblem& problem, JoinedProblem* joined);

// Planes of the result whose sums have the same taps along the depth. For i < num_planes and t < num_taps, plane
// first_plane + i * plane_step of the result adds, with plane first_tap + t * tap_step of the weight, the products of
// plane source_plane + i * source_step + t * source_tap_step of the source.
struct PlaneSlice {
  int32_t first_plane, plane_step, num_planes;
  int32_t source_plane, source_step, source_tap_step;
  int32_t first_tap, tap_step, num_taps;
};

inline constexpr int32_t kMostDepthTaps = 4096;  // of kernels that run slice by slice

// All planes of the result, each in one slice. For the forward pass and the gradient of the input.
std::vector<PlaneSlice> plane_slices(const ConvTProblem& problem);

// The two-dimensional problem of one batch element's planes, which are its images. With taps_as_channels, source
// channel c * num_taps + t is tap t of channel c. Strides of channels remain those of the three-dimensional problem.
ConvTProblem slice_problem(const ConvTProblem& problem, const PlaneSlice& slice, bool taps_as_channels);

// The pairs of planes that one tap along the depth multiplies in the gradient of the weight: plane x + i of the input
// and plane y + i * stride of grad_output, i < count.
struct PlanePairs {
  int32_t x, y, count;
};
PlanePairs plane_pairs(const Axis& d, int32_t tap);

// The two-dimensional gradient of the weight of these pairs, whose images are the pairs of all batch elements. Their
// strides are those between adjacent pairs of one element.
ConvTProblem pairs_problem(const ConvTProblem& problem, const PlanePairs& pairs);

}  // namespace convt
