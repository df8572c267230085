#include "tiling/axis.h"

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

}  // namespace convt
