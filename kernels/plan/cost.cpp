// Operation counts, a lower bound on kernel time, and a cost model of PyTorch's operators.
#include "plan/cost.h"

#include <algorithm>
#include <cmath>

#include "plan/plan.h"
#include "problem/phases.h"

namespace convt {
namespace {

// (input coordinate, tap) pairs of one axis whose output coordinate exists. Very long kernels are sampled.
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

double proportion(const DeviceInfo& device, bool float64, double longer) {
  auto rate = [float64](const DeviceInfo& gpu) {
    return multiply_adds_per_cycle(gpu, float64) * gpu.num_sms * gpu.clock_ghz;
  };
  return longer * rate(h200()) / rate(device);
}

void estimate_in_proportion(double longer, Plan* plan) {
  plan->compute_us *= longer;
  plan->memory_us *= longer;
  plan->estimate_us *= longer;
}

double useful_multiply_adds(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * (problem.c_out / problem.groups) *
         useful_pairs(problem.d) * useful_pairs(problem.h) * useful_pairs(problem.w);
}

double floor_us(const ConvTProblem& problem, const DeviceInfo& device, double rate_tflops) {
  const double elements = input_elements(problem) + static_cast<double>(weight_elements(problem)) +
                          (problem.has_bias ? problem.c_out : 0.0) + output_elements(problem);
  const double memory = elements * element_bytes(problem.dtype) / (device.copy_gb_per_s * 1e3);
  double rate = rate_tflops * 1e6;  // operations per microsecond
  if (rate <= 0) {
    const double lanes = multiply_adds_per_cycle(device, problem.dtype == DataType::kFloat64);
    rate = 2 * lanes * device.num_sms * device.clock_ghz * 1e3;
  }
  return std::max(memory, 2 * useful_multiply_adds(problem) / rate);
}

namespace {

// Cost model of PyTorch's operators, fitted to PyTorch 2.11 with cuDNN 9.19 on an H200. The formulas stay below most
// measurements, so that a call without any opt-in is not made slower.

// Depthwise layers of 3 x 3 and 5 x 5 taps, for which cuDNN has special kernels: passes over both images at copy
// bandwidth, and the multiply rate in TFLOP/s. Fitted to 120 measurements of 10 layers: forward, gradients of the input
// and the weight, default precision and bfloat16, both layouts.
struct DepthwiseTimes {
  double passes;
  double tflops;
};
constexpr DepthwiseTimes kDepthwiseTimes[3][2][2][2] = {
    // Forward, float32: NCHW with stride 1 and 2, then channels_last; then the same in half precision.
    {{{{0.45, 1.75}, {1, 0.4}}, {{0.45, 8.2}, {1.45, 1.45}}}, {{{1.4, 15}, {1, 0.4}}, {{1.2, 9.2}, {1.6, 2.1}}}},
    // Gradient of the input.
    {{{{1.2, 7}, {0.5, 2.7}}, {{0.1, 7.6}, {0.55, 8}}}, {{{1.4, 15}, {1.6, 10.5}}, {{0.67, 19}, {1.05, 14}}}},
    // Gradient of the weight.
    {{{{2.3, 7.5}, {3, 4.9}}, {{0, 8.8}, {0.4, 4.7}}}, {{{1.2, 9}, {0.9, 2.2}}, {{2, 17}, {1.75, 16}}}},
};

// All classes except float64. Returns 0 for other layers.
double torch_depthwise_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const Axis &h = problem.h, &w = problem.w;
  if (problem.groups == 1 || problem.c_in != problem.groups || problem.c_out != problem.groups) return 0;
  if (h.kernel != w.kernel || (h.kernel != 3 && h.kernel != 5)) return 0;
  if (h.stride != w.stride || h.stride > 2 || h.dilation != 1 || w.dilation != 1) return 0;
  if (problem.dtype == DataType::kFloat64) return 0;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const DepthwiseTimes& times = kDepthwiseTimes[static_cast<int32_t>(problem.direction)][bytes == 2]
                                               [is_channels_last(problem.x_stride)][h.stride == 2];
  const double images_us = bytes * (input_elements(problem) + output_elements(problem)) * 1e-3 / device.copy_gb_per_s;
  const double machine = device.num_sms * device.clock_ghz / (132 * 1.89);  // throughput relative to an H200
  constexpr double kCallUs = 6.5;
  return kCallUs + times.passes * images_us + 2e-6 * useful_multiply_adds(problem) / machine / times.tflops;
}

// Work of a call, normalized to an H200: operations, and the microseconds that its bytes take at copy bandwidth.
struct TorchWork {
  double mflops;
  double images_us;  // x and y
  double used_us;  // x and y, without outputs that no tap reaches, which gradients do not need
  double weight_us;
};

// Gradient of the weight on tensor cores, fitted to 70 network layers in each of four cases. About seven of eight of
// the 280 measurements are longer than the model.
struct GradWeightCosts {
  double call_us;
  double tflops;  // at full_channels and more
  double few_channels;  // exponent of (channels / full_channels) for fewer channels
  double full_channels;
  double overlaps;  // slowdown at stride 1
  // Microseconds per microsecond that the bytes take at copy bandwidth: both images, if memory bounds the kernel; the
  // weight; both images again for the copies from NCHW to channels_last.
  double passes, weight, copies;
};
constexpr GradWeightCosts kGradWeightCosts[2][2] = {
    {{21.7, 200, 1.35, 76, 1.25, 1.27, 2.3, 2.27},
     {12.4, 218, 1.78, 71, 1.23, 1.1, 0.6, 0}},  // TF32: NCHW, channels_last
    {{18.7, 850, 2.37, 63.5, 1.24, 1.12, 7.1, 3.64}, {9.2, 760, 2.0, 62.5, 1.13, 1.16, 1.1, 0}},  // half precision
};

// Ungrouped layers with at least 8 channels.
double torch_grad_weight_us(const ConvTProblem& problem, const TorchWork& work) {
  const GradWeightCosts& fit =
      kGradWeightCosts[problem.precision == Precision::kHalf][is_channels_last(problem.x_stride)];
  const double channels = static_cast<double>(std::min(problem.c_in, problem.c_out));
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool product = problem.h.kernel == 1 && problem.w.kernel == 1 && !strided;  // needs no copies
  double tflops = fit.tflops * std::min(1.0, std::pow(channels / fit.full_channels, fit.few_channels));
  if (!strided && !product) tflops /= fit.overlaps;
  return fit.call_us + std::max(work.mflops / tflops, fit.passes * work.used_us) + fit.weight * work.weight_us +
         (product ? 0 : fit.copies * work.images_us);
}

// Forward and gradient of the input on tensor cores. Seven of eight of 560 measurements are longer than the model (70
// network layers, both directions, TF32 and bfloat16, both layouts). Units: microseconds per microsecond that the
// operands' bytes take at copy bandwidth, unless stated.
struct TensorCoreCosts {
  double call_us;
  double tflops;  // at 64 channels and more
  double few_channels;  // exponent of (channels / 64) for fewer channels
  double passes;  // over both images, in a memory-bound kernel
  double weight;  // bytes of the weight
  double nhwc_weight;  // `weight` in channels_last. Fitted to layers of 1024 channels: cuDNN is fastest with large K.
  // Additional cost of NCHW: cuDNN copies to channels_last and back.
  double copy_call_us, copy_images, copy_weight;
};
constexpr TensorCoreCosts kForwardTf32 = {10.5, 350, 0.6, 1.2, 3.6, 3.6, 6.0, 3.0, 5.7};
constexpr TensorCoreCosts kForwardHalf = {9.0, 760, 1.0, 0.95, 3.9, 0.4, 9.0, 4.4, 5.8};
constexpr TensorCoreCosts kGradientTf32 = {8.5, 400, 0.75, 1.05, 2.1, 0, 6.0, 1.9, 3.5};
constexpr TensorCoreCosts kGradientHalf = {8.0, 800, 0.5, 1.0, 2.9, 0.2, 8.5, 3.7, 6.0};

// TFLOP/s of layers for which PyTorch has no tuned kernels; 0 for other layers.
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
  if (forward && strided && dilated) return half ? 88 : 5.2;
  // Measured on one layer, 21 channels and 16 x 16 taps, in all directions and layouts: 10 to 15 TFLOP/s, in half
  // precision 19 to 25. The model assumes more, so that no call is made slower.
  const bool large = int64_t{problem.h.kernel} * problem.w.kernel >= 100;
  if (large && channels < 32) return half ? 27 : 16;
  return 0;
}

// The classes that PyTorch computes on tensor cores.
double torch_tensor_core_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool half = problem.precision == Precision::kHalf;
  const bool forward = problem.direction == Direction::kForward;
  const TensorCoreCosts& fit = forward ? (half ? kForwardHalf : kForwardTf32) : half ? kGradientHalf : kGradientTf32;
  const double us_per_element = static_cast<double>(element_bytes(problem.dtype)) * 1e-3 / device.copy_gb_per_s;
  const double x_us = us_per_element * input_elements(problem);
  const double y_us = us_per_element * output_elements(problem);
  const double weight_us = us_per_element * static_cast<double>(problem.c_in * (problem.c_out / problem.groups) *
                                                                problem.h.kernel * problem.w.kernel);
  // Gradients need only the outputs that a tap reaches.
  const double used = forward ? 1
                              : std::min(1.0, static_cast<double>(problem.h.kernel) / problem.h.stride) *
                                    std::min(1.0, static_cast<double>(problem.w.kernel) / problem.w.stride);
  const double machine = device.num_sms * device.clock_ghz / (132 * 1.89);  // throughput relative to an H200
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
    // Stride 1, 4 layers of 32 and 64 channels in both classes and directions: at least 1.41 times the model, with 32
    // channels 1.57 times. Forward in TF32 with stride 2 and overlapping taps, 5 layers: at least 1.36 times.
    const bool overlaps = taps > strides && problem.h.dilation == 1 && problem.w.dilation == 1;
    const bool few = std::max(problem.c_in, problem.c_out) <= 64;
    if (overlaps && strides == 1 && few) tflops /= channels <= 32 ? 1.55 : 1.4;
    // One layer with fewer taps and 512 channels: 1.19 times.
    if (overlaps && strides == 4 && forward && !half) tflops /= taps < 16 && problem.c_in >= 512 ? 1.18 : 1.35;
  }
  // Kernel equal to stride in channels_last: 11 layers, 2 x 2 and 4 x 4, take at least this long.
  const bool patches = forward && channels_last && taps > 1 && problem.h.kernel == problem.h.stride &&
                       problem.w.kernel == problem.w.stride && channels >= 32;
  const double passes = patches ? 1.8 * std::pow(std::max(1.0, taps / 4.0), 0.8) : fit.passes;
  const double kernel_us = fit.call_us + std::max(mflops / tflops, passes * used_us) +
                           (channels_last ? fit.nhwc_weight : fit.weight) * weight_us;
  const bool product = taps == 1 && strides == 1;
  if (channels_last || product) return kernel_us;  // a matrix product needs no copies
  return kernel_us + fit.copy_call_us + fit.copy_images * (x_us + y_us) + fit.copy_weight * weight_us;
}

// Correction factors of the fits above, from 70 held-out layers (benchmarks/unseen_fitting.csv). A factor is above 1
// where convt_ext is faster on these layers than the fits predict, and below 1 where a call is slower. Grouped layers
// always run in convt_ext.
double beside_the_list(const ConvTProblem& problem) {
  if (problem.groups > 1) return 1;
  const bool half = problem.precision == Precision::kHalf, channels_last = is_channels_last(problem.x_stride);
  switch (problem.direction) {
    case Direction::kForward: return half ? (channels_last ? 1 : 1.1) : channels_last ? 1.1 : 1.3;
    case Direction::kGradInput: return half ? (channels_last ? 0.85 : 1.1) : channels_last ? 0.9 : 0.95;
    case Direction::kGradWeight: return !half ? 1 : channels_last ? 1.2 : 0.85;
  }
  return 1;
}

// Gradient in float32. Inputs: time of the multiply-adds at full rate, and of reading or writing both tensors once.
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

// Forward with stride > 1, both layouts: 146 measurements of 73 layers. Few channels are slow.
double torch_strided_us(int64_t channels, bool channels_last, double multiply_us, double copies_us) {
  constexpr double kCallUs = 10;
  if (channels >= 64) return 1.65 * multiply_us + (channels_last ? 1.8 : 1.0) * copies_us + kCallUs;
  const double passes = channels >= 16 && channels < 32 ? 4.5 : 2.0;
  return (channels_last ? 1.1 : 1.0) * passes * (multiply_us + copies_us) + kCallUs;
}

// GPU time of the exact classes.
double torch_exact_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const bool float64 = problem.dtype == DataType::kFloat64, aten = problem.precision == Precision::kAten;
  const double multiply_us = useful_multiply_adds(problem) /
                             (multiply_adds_per_cycle(device, float64) * device.num_sms * device.clock_ghz * 1e3);
  const double batch = static_cast<double>(problem.batch), gb_to_us = 1e-3 / device.copy_gb_per_s;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double call_us = float64 ? 25 : 9;  // float64 includes the host's part, which was not measured separately
  if (aten) {
    // One image at a time: a GEMM into columns, then col2im. About nine passes over the columns.
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
  // Large kernels on many channels use a transform that needs fewer multiplications.
  const bool transform = channels >= 64 && int64_t{problem.h.kernel} * problem.w.kernel >= 15;
  return (transform ? 0.55 : 2.2) * multiply_us + copies_us + call_us;
}

// Three-dimensional layers, below most measurements of the layers of benchmarks/volume_fitting.csv. On tensor cores
// (kernel = stride): a call, and passes over input and output at copy bandwidth. `ieee` (other kernels): multiples of
// the time of the multiply-adds. Other classes are not modelled: the time of one copy leaves them to PyTorch.
double torch_volume_us(const ConvTProblem& problem, const DeviceInfo& device) {
  struct Fit {
    double call, passes;
  };
  // Forward, gradients of input and weight: TF32 in NCDHW and NDHWC, then half precision.
  constexpr Fit kFits[3][2][2] = {{{{22, 7.6}, {20, 4.9}}, {{22, 9.9}, {18, 6.9}}},
                                  {{{22, 2.8}, {16, 1.4}}, {{20, 5.0}, {14, 1.1}}},
                                  {{{22, 5.0}, {16, 2.1}}, {{22, 5.4}, {11, 1.4}}}};
  constexpr double kMultiples[3][2] = {{3.6, 2.0}, {2.0, 2.0}, {6.4, 2.0}};  // few channels, many channels
  constexpr double kMargin = 0.8;
  const auto direction = static_cast<int32_t>(problem.direction);
  const double copy_us = static_cast<double>(element_bytes(problem.dtype)) *
                         (input_elements(problem) + output_elements(problem)) * 1e-3 / device.copy_gb_per_s;
  if (problem.precision == Precision::kTf32 || problem.precision == Precision::kHalf) {
    const bool half = problem.precision == Precision::kHalf;
    const Fit& fit = kFits[direction][half][is_channels_last(problem.x_stride)];
    return kMargin * (fit.call + fit.passes * copy_us);
  }
  if (problem.precision != Precision::kIeee || problem.dtype != DataType::kFloat32) return copy_us;
  const double multiply_us = useful_multiply_adds(problem) /
                             (multiply_adds_per_cycle(device, false) * device.num_sms * device.clock_ghz * 1e3);
  const bool many = std::min(problem.c_in, problem.c_out) / problem.groups > 48;
  return kMargin * kMultiples[direction][many] * multiply_us;
}

}  // namespace

double torch_us(const ConvTProblem& problem, const DeviceInfo& device) {
  if (is_volume(problem)) return torch_volume_us(problem, device);
  const bool ieee = problem.precision == Precision::kIeee, aten = problem.precision == Precision::kAten;
  const bool float64 = problem.dtype == DataType::kFloat64, float32 = problem.dtype == DataType::kFloat32;
  const bool tensor_cores = problem.precision == Precision::kTf32 || problem.precision == Precision::kHalf;
  const bool exact = (ieee && float64) || ((ieee || aten) && float32);
  if (!tensor_cores && !exact) return 0;
  const double depthwise_us = aten ? 0 : torch_depthwise_us(problem, device);
  const double on_gpu = depthwise_us > 0 ? depthwise_us
                        : tensor_cores   ? beside_the_list(problem) * torch_tensor_core_us(problem, device)
                                         : torch_exact_us(problem, device);
  // The GPU waits at least this long for the host. The host takes longer to issue PyTorch's call than that of
  // convt_ext.
  constexpr double kIssueUs = 17;
  return exact && problem.direction == Direction::kForward ? std::max(on_gpu, kIssueUs) : on_gpu;
}

}  // namespace convt
