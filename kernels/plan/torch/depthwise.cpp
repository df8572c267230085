// How long PyTorch takes for depthwise layers of 3 x 3 and 5 x 5 taps, for which cuDNN has kernels of their own.
#include "plan/cost.h"

namespace convt {
namespace {

// Passes over both images at copy bandwidth, and the rate of the products, in TFLOP/s. PyTorch 2.11 with cuDNN 9.19 on
// an H200: 10 layers, forward, gradients of the input and the weight, default precision and bfloat16, both layouts,
// fitted so that most of the 120 measurements are longer: nobody who asked for nothing is to be made slower.
struct Times {
  double passes;
  double tflops;
};
constexpr Times kTimes[3][2][2][2] = {
    // Forward, float32: NCHW without stride and with one, then channels_last; then in half precision.
    {{{{0.45, 1.75}, {1, 0.4}}, {{0.45, 8.2}, {1.45, 1.45}}}, {{{1.4, 15}, {1, 0.4}}, {{1.2, 9.2}, {1.6, 2.1}}}},
    // Gradient of the input.
    {{{{1.2, 7}, {0.5, 2.7}}, {{0.1, 7.6}, {0.55, 8}}}, {{{1.4, 15}, {1.6, 10.5}}, {{0.67, 19}, {1.05, 14}}}},
    // Gradient of the weight.
    {{{{2.3, 7.5}, {3, 4.9}}, {{0, 8.8}, {0.4, 4.7}}}, {{{1.2, 9}, {0.9, 2.2}}, {{2, 17}, {1.75, 16}}}},
};
constexpr double kCallUs = 6.5;

}  // namespace

double torch_depthwise_us(const ConvTProblem& problem, const DeviceInfo& device) {
  const Axis &h = problem.h, &w = problem.w;
  if (problem.groups == 1 || problem.c_in != problem.groups || problem.c_out != problem.groups) return 0;
  if (h.kernel != w.kernel || (h.kernel != 3 && h.kernel != 5)) return 0;
  if (h.stride != w.stride || h.stride > 2 || h.dilation != 1 || w.dilation != 1) return 0;
  if (problem.dtype == DataType::kFloat64) return 0;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const Times& times =
      kTimes[static_cast<int32_t>(problem.direction)][bytes == 2][is_channels_last(problem.x_stride)][h.stride == 2];
  const double images_us = bytes * (input_elements(problem) + output_elements(problem)) * 1e-3 / device.copy_gb_per_s;
  const double machine = device.num_sms * device.clock_ghz / (132 * 1.89);  // beside an H200
  return kCallUs + times.passes * images_us + 2e-6 * useful_multiply_adds(problem) / machine / times.tflops;
}

}  // namespace convt
