#include "plan/cost.h"

#include <algorithm>
#include <cmath>

#include "problem/phases.h"

namespace convt {
namespace {

// (input coordinate, tap) pairs of one axis whose output coordinate exists: of very long kernels by a sample of taps.
double useful_pairs(const Axis& axis) {
  constexpr int64_t kMostCounted = 1 << 16;
  const int64_t step = ceil_div(int64_t{axis.kernel}, kMostCounted);
  double pairs = 0;
  for (int64_t k = 0; k < axis.kernel; k += step) {
    // 0 <= i * stride - padding + k * dilation < out
    const int64_t offset = k * axis.dilation - axis.padding;
    const int64_t first = offset >= 0 ? 0 : (-offset + axis.stride - 1) / axis.stride;
    const int64_t room = axis.out - 1 - offset;
    const int64_t last = room < 0 ? -1 : std::min<int64_t>(axis.in - 1, room / axis.stride);
    if (last >= first) pairs += static_cast<double>(last - first + 1);
  }
  return pairs * static_cast<double>(step);
}

}  // namespace

void estimate_in_proportion(const DeviceInfo& device, bool float64, double longer, Plan* plan) {
  auto rate = [float64](const DeviceInfo& gpu) {
    return multiply_adds_per_cycle(gpu, float64) * gpu.num_sms * gpu.clock_ghz;
  };
  const double slower = longer * rate(h200()) / rate(device);
  plan->compute_us *= slower;
  plan->memory_us *= slower;
  plan->estimate_us *= slower;
}

double useful_multiply_adds(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * (problem.c_out / problem.groups) *
         useful_pairs(problem.h) * useful_pairs(problem.w);
}

double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops) {
  const double elements =
      input_elements(problem) +
      static_cast<double>(problem.c_in) * (problem.c_out / problem.groups) * problem.h.kernel * problem.w.kernel +
      (problem.has_bias ? problem.c_out : 0.0) + output_elements(problem);
  const double memory = elements * element_bytes(problem.dtype) / (device.copy_gb_per_s * 1e3);
  double rate = rate_tflops * 1e6;  // operations per microsecond
  if (rate <= 0) {
    const double lanes = multiply_adds_per_cycle(device, problem.dtype == DataType::kFloat64);
    rate = 2 * lanes * device.num_sms * device.clock_ghz * 1e3;
  }
  return std::max(memory, 2 * useful_multiply_adds(problem) / rate);
}

}  // namespace convt
