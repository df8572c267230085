#include <algorithm>
#include <cmath>

#include "plan/cost.h"

namespace convt {
namespace {

// Times of PyTorch 2.11 with cuDNN 9.19 on an H200, fitted so that seven of eight of 560 measurements (70 layers of
// networks, forward and gradient of the input, TF32 and bfloat16, both layouts) are longer: nobody who asked for
// nothing is to be made slower. Microseconds per microsecond that the operands' bytes take at copy bandwidth, unless
// said.
struct Coefficients {
  double call_us;
  double tflops;        // of 64 channels and more
  double few_channels;  // power of (channels / 64) that fewer reach of that
  double passes;        // over both images, in a kernel bound by memory
  double weight;        // of the weight's bytes
  double nhwc_weight;   // the same in channels_last: of layers of 1024 channels, whose long sums cuDNN is fastest at
  // What NCHW costs on top: cuDNN copies to channels_last and back.
  double copy_call_us, copy_images, copy_weight;
};
constexpr Coefficients kForwardTf32 = {10.5, 350, 0.6, 1.2, 3.6, 3.6, 6.0, 3.0, 5.7};
constexpr Coefficients kForwardHalf = {9.0, 760, 1.0, 0.95, 3.9, 0.4, 9.0, 4.4, 5.8};
constexpr Coefficients kGradientTf32 = {8.5, 400, 0.75, 1.05, 2.1, 0, 6.0, 1.9, 3.5};
constexpr Coefficients kGradientHalf = {8.0, 800, 0.5, 1.0, 2.9, 0.2, 8.5, 3.7, 6.0};

// What PyTorch computes with kernels that nobody tuned, in TFLOP/s; 0: with its tuned ones.
double untuned_tflops(const ConvTProblem& problem, bool forward, bool half, bool channels_last) {
  const int64_t channels = std::min(problem.c_in, problem.c_out) / problem.groups;
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool dilated = problem.h.dilation > 1 || problem.w.dilation > 1;
  const bool of_weight = problem.direction == Direction::kGradWeight;
  if (channels == 1 && problem.groups > 1) {
    if (of_weight) return !channels_last ? 1.5 : half ? 0.45 : 0.3;
    return forward ? 0.4 : channels_last ? 0.36 : 3;
  }
  if (problem.groups > 1) return forward ? (half ? 10.5 : 1.5) : 20;
  if (channels < 8 && of_weight) return half ? 22 : 20;
  if (channels < 8) return forward ? 16 : 40;
  if (forward && strided && dilated) return half ? 11 : 5.2;
  // One layer, 21 channels and 16 x 16 taps, in all directions and layouts: 10 to 15 TFLOP/s, in half precision 19
  // to 25. Taken faster than that, so that no call is made slower.
  const bool large = int64_t{problem.h.kernel} * problem.w.kernel >= 100;
  if (large && channels < 32) return half ? 27 : 16;
  return 0;
}

}  // namespace

double torch_tensor_core_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool half = problem.precision == Precision::kHalf;
  const bool forward = problem.direction == Direction::kForward;
  const Coefficients& fit = forward ? (half ? kForwardHalf : kForwardTf32) : half ? kGradientHalf : kGradientTf32;
  const double us_per_element = static_cast<double>(element_bytes(problem.dtype)) * 1e-3 / device.copy_gb_per_s;
  const double x_us = us_per_element * input_elements(problem);
  const double y_us = us_per_element * output_elements(problem);
  const double weight_us = us_per_element * static_cast<double>(problem.c_in * (problem.c_out / problem.groups) *
                                                                problem.h.kernel * problem.w.kernel);
  // Gradients need only the outputs that have a tap.
  const double used = forward ? 1
                              : std::min(1.0, static_cast<double>(problem.h.kernel) / problem.h.stride) *
                                    std::min(1.0, static_cast<double>(problem.w.kernel) / problem.w.stride);
  const double machine = device.num_sms * device.clock_ghz / (132 * 1.89);  // beside an H200
  const double mflops = 2e-6 * useful_multiply_adds(problem) / machine;
  const double used_us = x_us + used * y_us;
  const bool channels_last = is_channels_last(problem.x_stride);
  if (const double tflops = untuned_tflops(problem, forward, half, channels_last); tflops > 0) {
    const double call_us = problem.groups == 1 ? 7.5 : 7;
    return call_us + used_us + mflops / tflops;
  }
  if (problem.direction == Direction::kGradWeight) {
    return torch_grad_weight_us(problem, {mflops, x_us + y_us, used_us, weight_us});
  }
  const double channels = static_cast<double>(std::min(problem.c_in, problem.c_out));
  double tflops = fit.tflops * std::min(1.0, std::pow(channels / 64, fit.few_channels));
  const int64_t taps = int64_t{problem.h.kernel} * problem.w.kernel;
  const int64_t strides = int64_t{problem.h.stride} * problem.w.stride;
  if (channels_last) {
    // Without stride, 4 layers of 32 and 64 channels in both classes and directions: 1.41 times and more of that, with
    // 32 channels 1.57. Forward in TF32 with stride 2 and overlapping taps, 5 layers: 1.36 times and more.
    const bool overlaps = taps > strides && problem.h.dilation == 1 && problem.w.dilation == 1;
    const bool few = std::max(problem.c_in, problem.c_out) <= 64;
    if (overlaps && strides == 1 && few) tflops /= channels <= 32 ? 1.55 : 1.4;
    // One with fewer taps and 512 channels: 1.19 times.
    if (overlaps && strides == 4 && forward && !half) tflops /= taps < 16 && problem.c_in >= 512 ? 1.18 : 1.35;
  }
  // Patches in channels_last: 11 layers, 2 x 2 and 4 x 4, took at least these.
  const bool patches = forward && channels_last && taps > 1 && problem.h.kernel == problem.h.stride &&
                       problem.w.kernel == problem.w.stride && channels >= 32;
  const double passes = patches ? 1.8 * std::pow(std::max(1.0, taps / 4.0), 0.8) : fit.passes;
  const double kernel_us = fit.call_us + std::max(mflops / tflops, passes * used_us) +
                           (channels_last ? fit.nhwc_weight : fit.weight) * weight_us;
  const bool product = taps == 1 && strides == 1;
  if (channels_last || product) return kernel_us;  // a product of matrices needs no copies
  return kernel_us + fit.copy_call_us + fit.copy_images * (x_us + y_us) + fit.copy_weight * weight_us;
}

}  // namespace convt
