#include <algorithm>

#include "plan/cost.h"

namespace convt {

// Fitted to the lower edge of what was measured, so that nobody who asked for nothing is made slower. In channels_last
// cuDNN's kernels read and write in place: arithmetic at some rate, or passes over the operands. In NCHW both operands
// are copied to the other layout before or after.
double torch_tensor_core_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool half = problem.precision == Precision::kHalf;
  const double bytes = static_cast<double>(element_bytes(problem.dtype)), gb_to_us = 1e-3 / device.copy_gb_per_s;
  const double batch = static_cast<double>(problem.batch);
  const bool forward = problem.direction == Direction::kForward;
  const double x_us = bytes * gb_to_us * batch * problem.c_in * problem.h.in * problem.w.in;
  const double y_us = bytes * gb_to_us * batch * problem.c_out * problem.h.out * problem.w.out;
  // Gradients need only the outputs that have a tap.
  const double used = forward ? 1
                              : std::min(1.0, static_cast<double>(problem.h.kernel) / problem.h.stride) *
                                    std::min(1.0, static_cast<double>(problem.w.kernel) / problem.w.stride);
  // Products per microsecond of an H200, scaled by SMs and clock.
  const double machine = device.num_sms * device.clock_ghz / (132 * 1.89);
  const double products = useful_multiply_adds(problem);
  const double tflops = half ? 750 : forward ? 330 : 400;
  const double passes = forward ? 1.9 : 1.0;
  const double kernel_us = std::max(2 * products / (tflops * 1e6 * machine), passes * (x_us + used * y_us));

  const bool channels_last = problem.x_stride[1] == 1 && problem.x_stride[3] != 1;
  const double copies_us = channels_last ? 0 : 2 * (x_us + y_us);
  constexpr double kCallUs = 7;
  // Groups, dilated strides and very few channels take paths that nobody has tuned.
  const int64_t channels = std::min(problem.c_in, problem.c_out) / problem.groups;
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool untuned = problem.groups > 1 || (strided && (problem.h.dilation > 1 || problem.w.dilation > 1));
  const double slowness = !forward ? 1.0 : untuned ? (half ? 1.8 : 2.0) : channels < 8 ? 2.0 : 1.0;
  return slowness * kernel_us + copies_us + kCallUs;
}

}  // namespace convt
