// How long PyTorch takes for the gradient of the weight on tensor cores, without groups and for 8 channels and more.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"

namespace convt {
namespace {

// PyTorch 2.11 with cuDNN 9.19 on an H200: 70 layers of networks in each of four cases, fitted so that about seven of
// eight of the 280 measurements are longer: nobody who asked for nothing is to be made slower.
struct Coefficients {
  double call_us;
  double tflops;  // of full_channels and more
  double few_channels;  // power of (channels / full_channels) that fewer reach of that
  double full_channels;
  double overlaps;  // times as long without stride
  // Microseconds per microsecond that the bytes take at copy bandwidth: of both images, where memory bounds the kernel;
  // of the weight; of both images again for the copies from NCHW to channels_last.
  double passes, weight, copies;
};
constexpr Coefficients kFits[2][2] = {
    {{21.7, 200, 1.35, 76, 1.25, 1.27, 2.3, 2.27},
     {12.4, 218, 1.78, 71, 1.23, 1.1, 0.6, 0}},  // TF32: NCHW, channels_last
    {{18.7, 850, 2.37, 63.5, 1.24, 1.12, 7.1, 3.64}, {9.2, 760, 2.0, 62.5, 1.13, 1.16, 1.1, 0}},  // half precision
};

}  // namespace

double torch_grad_weight_us(const ConvTProblem& problem, const TorchWork& work) {
  const Coefficients& fit = kFits[problem.precision == Precision::kHalf][is_channels_last(problem.x_stride)];
  const double channels = static_cast<double>(std::min(problem.c_in, problem.c_out));
  const bool strided = problem.h.stride > 1 || problem.w.stride > 1;
  const bool product = problem.h.kernel == 1 && problem.w.kernel == 1 && !strided;  // needs no copies
  double tflops = fit.tflops * std::min(1.0, std::pow(channels / fit.full_channels, fit.few_channels));
  if (!strided && !product) tflops /= fit.overlaps;
  return fit.call_us + std::max(work.mflops / tflops, fit.passes * work.used_us) + fit.weight * work.weight_us +
         (product ? 0 : fit.copies * work.images_us);
}

}  // namespace convt
