// An axis of a forward problem whose tiles contain all phases of their positions, and the operands of a layer with few
// channels. Called by: layouts and kernels of thin/ and mma_sm90a/.
//
// At *position* q:
//     tap t reads source coordinate    q + offset[t]
//     phase v writes result coordinate q * out_stride + v - out_origin
// Positions are counted from the padded output's edge, so that tap t of every phase reads the same coordinate:
// k * dilation = step * stride + v, offset = -step.
#pragma once

#include <cstdint>

#include "problem/phases.h"
#include "problem/problem.h"

namespace convt {

inline constexpr int32_t kMaxAxisTaps = 16;    // one bit each in 16-bit masks
inline constexpr int32_t kMaxAxisPhases = 32;  // one bit each in `filled`

struct PhaseAxis {
  int32_t in;  // extent of the source
  int32_t out;  // extent of the result
  int32_t first;  // first position
  int32_t positions;  // number of positions
  int32_t out_stride;  // phases
  int32_t out_origin;
  int32_t num_taps;
  int32_t num_filled;  // phases with taps
  uint32_t filled;  // bit v: phase v has taps
  // Phase v uses weight tap k = (step[t] * out_stride + v) / dilation, if that is an integer below kernel.
  int32_t kernel;
  int32_t dilation;
  int32_t step[kMaxAxisTaps];
  int32_t offset[kMaxAxisTaps];
  int32_t least_offset;
  int32_t greatest_offset;
};

// Index of the weight's tap for tap t of phase v, or -1.
CONVT_HOST_DEVICE inline int32_t weight_tap(const PhaseAxis& axis, int32_t t, int32_t phase) {
  const int32_t distance = axis.step[t] * axis.out_stride + phase;
  const int32_t k = distance / axis.dilation;
  return k * axis.dilation == distance && k < axis.kernel ? k : -1;
}

// Returns false if the axis exceeds these limits.
bool make_phase_axis(const Axis& axis, PhaseAxis* made);

// Strides, in elements, and channels of a layer with few channels.
struct ChannelGroups {
  int64_t source_stride[4];
  int64_t result_stride[4];
  int64_t weight_stride[4];  // of input channel, output channel, kh, kw
  int64_t weight_group_stride;
  int32_t groups, group_ci, group_co;
};

// Forward and dX. Returns false if the layer has too many channels or groups.
bool make_channel_groups(const ConvTProblem& problem, ChannelGroups* made);

}  // namespace convt
