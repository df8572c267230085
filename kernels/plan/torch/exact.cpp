// How long PyTorch takes: for the exact classes, and the choice among the estimates of this folder.
#include <algorithm>

#include "plan/cost.h"
#include "plan/measured.h"

namespace convt {
namespace {

// torch_us() of a gradient in float32: from the multiply-adds at full rate, and both tensors read or written once.
double torch_gradient_us(const ConvTProblem& problem, double multiply_us, double bytes_us) {
  const bool input = problem.direction == Direction::kGradInput;
  constexpr double kCallUs = 8;
  if (problem.groups > 1) return (input ? 3.2 : 7.0) * bytes_us + kCallUs;
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool few_channels = std::min(problem.c_in, problem.c_out) < 64;
  const double products = input ? (!strided && few_channels ? 2.05 : 1.45) : (strided ? 1.95 : 2.35);
  const double tuned_us = std::max(products * multiply_us, (input ? 0.85 : 1.35) * bytes_us);
  const bool untuned = !input && strided && std::min(problem.c_in, problem.c_out) < 32 && problem.x_stride[1] != 1;
  return (untuned ? std::max(tuned_us, 2.6 * (multiply_us + bytes_us)) : tuned_us) + kCallUs;
}

// The same of the forward pass with a stride, in both layouts: 146 measurements of 73 layers. Few channels are slow.
double torch_strided_us(int64_t channels, bool channels_last, double multiply_us, double copies_us) {
  constexpr double kCallUs = 10;
  if (channels >= 64) return 1.65 * multiply_us + (channels_last ? 1.8 : 1.0) * copies_us + kCallUs;
  const double passes = channels >= 16 && channels < 32 ? 4.5 : 2.0;
  return (channels_last ? 1.1 : 1.0) * passes * (multiply_us + copies_us) + kCallUs;
}

// torch_us() of the exact classes, on the GPU.
double torch_exact_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool float64 = problem.dtype == DataType::kFloat64, aten = problem.precision == Precision::kAten;
  const double multiply_us = useful_multiply_adds(problem) /
                             (multiply_adds_per_cycle(device, float64) * device.num_sms * device.clock_ghz * 1e3);
  const double batch = static_cast<double>(problem.batch), gb_to_us = 1e-3 / device.copy_gb_per_s;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double call_us = float64 ? 25 : 9;  // of float64 with the host's part: its own was not measured
  if (aten) {
    // One image at a time: a GEMM into columns, and the sum of the columns. About nine passes over them.
    const double columns = bytes * batch * problem.c_out * problem.h.kernel * problem.w.kernel *
                           (static_cast<double>(problem.h.in) * problem.w.in);
    constexpr double kImageUs = 12;
    return 1.25 * multiply_us + 9 * columns * gb_to_us + kImageUs * batch;
  }
  const double copies_us = 2 * bytes * gb_to_us * (input_elements(problem) + output_elements(problem));
  if (problem.direction != Direction::kForward && !float64)
    return torch_gradient_us(problem, multiply_us, copies_us / 2);
  const int64_t channels = std::min(problem.c_in, problem.c_out) / problem.groups;
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool untuned = problem.groups > 1 || (strided && (problem.h.dilation > 1 || problem.w.dilation > 1));
  if (untuned) return 2.5 * (1.55 * multiply_us + copies_us + call_us);
  const bool channels_last = is_channels_last(problem.x_stride);
  if (strided && !float64) return torch_strided_us(channels, channels_last, multiply_us, copies_us);
  if (channels < 16) return 1.2 * (1.55 * multiply_us + copies_us + call_us);
  if (float64) return 2 * multiply_us + call_us;
  // Large kernels on many channels go through a transform that needs fewer products.
  const bool transform = channels >= 64 && int64_t{problem.h.kernel} * problem.w.kernel >= 15;
  return (transform ? 0.55 : 2.2) * multiply_us + copies_us + call_us;
}

}  // namespace

double torch_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const double measured_us = measured_torch_us(problem, device);
  return measured_us > 0 ? measured_us : torch_estimate_us(problem, device);
}

double torch_estimate_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool ieee = problem.precision == Precision::kIeee, aten = problem.precision == Precision::kAten;
  const bool float64 = problem.dtype == DataType::kFloat64, float32 = problem.dtype == DataType::kFloat32;
  const bool tensor_cores = problem.precision == Precision::kTf32 || problem.precision == Precision::kHalf;
  const bool exact = (ieee && float64) || ((ieee || aten) && float32);
  if (!tensor_cores && !exact) return 0;
  const double depthwise_us = aten ? 0 : torch_depthwise_us(problem, device);
  const double on_gpu = depthwise_us > 0 ? depthwise_us
                        : tensor_cores   ? torch_tensor_core_us(problem, device)
                                         : torch_exact_us(problem, device);
  // The GPU waits at least as long for the host, which takes longer to issue PyTorch's call than ours.
  constexpr double kIssueUs = 17;
  return exact && problem.direction == Direction::kForward ? std::max(on_gpu, kIssueUs) : on_gpu;
}

}  // namespace convt
