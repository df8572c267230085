#include "tiling/axis.h"

#include <algorithm>

namespace convt {
namespace {

int32_t floor_div(int32_t a, int32_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace

bool make_phase_axis(const Axis& axis, PhaseAxis* made) {
  *made = PhaseAxis{};
  made->kernel = axis.kernel;
  if (axis.stride > kMaxAxisPhases || axis.kernel > kMaxAxisTaps) return false;
  made->in = axis.in;
  made->out = axis.out;
  made->first = floor_div(axis.padding, axis.stride);
  made->positions = floor_div(axis.out - 1 + axis.padding, axis.stride) - made->first + 1;
  made->out_stride = axis.stride;
  made->out_origin = axis.padding;
  made->dilation = axis.dilation;
  for (int32_t k = 0; k < axis.kernel; ++k) {
    const int32_t step = k * axis.dilation / axis.stride;
    const uint32_t phase = 1u << (k * axis.dilation % axis.stride);
    if ((made->filled & phase) == 0) ++made->num_filled;
    made->filled |= phase;
    if (made->num_taps > 0 && made->step[made->num_taps - 1] == step) continue;
    made->step[made->num_taps] = step;
    made->offset[made->num_taps] = -step;
    ++made->num_taps;
  }
  made->least_offset = made->offset[made->num_taps - 1];
  made->greatest_offset = made->offset[0];
  return true;
}

bool make_channel_groups(const ConvTProblem& problem, ChannelGroups* made) {
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 4096;
  if (group_ci > kMostChannels || group_co > kMostChannels || problem.groups > (1 << 20)) return false;
  made->groups = static_cast<int32_t>(problem.groups);
  made->group_ci = static_cast<int32_t>(group_ci);
  made->group_co = static_cast<int32_t>(group_co);
  const bool forward = problem.direction == Direction::kForward;
  std::copy_n(forward ? problem.x_stride : problem.y_stride, 4, made->source_stride);
  std::copy_n(forward ? problem.y_stride : problem.x_stride, 4, made->result_stride);
  std::copy_n(problem.w_stride, 4, made->weight_stride);
  made->weight_group_stride = group_ci * problem.w_stride[0];
  return true;
}

}  // namespace convt
