// Estimated time of a plan. Units: issue slots and cycles of one SM, bytes, microseconds.
// Must not know: torch, CUDA, how candidates are made.
#pragma once

#include "plan/plan.h"

namespace convt {

// Multiply-adds that land inside the output, whole problem.
double useful_multiply_adds(const ConvTProblem& problem);

// Of the whole input and the whole output; gradients have their shapes.
inline double input_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_in * problem.h.in * problem.w.in;
}
inline double output_elements(const ConvTProblem& problem) {
  return static_cast<double>(problem.batch) * problem.c_out * problem.h.out * problem.w.out;
}

// Whether no tensor cores are asked for. The least times of calls are fitted for these classes and the others apart.
inline bool is_exact(const ConvTProblem& problem) {
  return problem.precision == Precision::kIeee || problem.precision == Precision::kAten;
}

// A plan that was estimated for the reference GPU, h200(), on `device`, and `longer` times as long: in proportion to
// the rates of multiply-adds. So the candidates of a gradient of the weight, whose plans decide bits, have the same
// order on every GPU.
void estimate_in_proportion(const DeviceInfo& device, bool float64, double longer, Plan* plan);

// torch_us() of the classes that PyTorch computes on tensor cores.
double torch_tensor_core_us(const ConvTProblem& problem, const DeviceInfo& device);

// What a call has to do, beside an H200: operations, and the microseconds that bytes take at copy bandwidth.
struct TorchWork {
  double mflops;
  double images_us;  // x and y
  double used_us;  // the same without outputs that have no tap, which gradients do not need
  double weight_us;
};

// The same of the gradient of the weight, without groups and for 8 channels and more.
double torch_grad_weight_us(const ConvTProblem& problem, const TorchWork& work);

// torch_us() of the depthwise layers that PyTorch has kernels for, in all classes but float64; 0 for other layers.
double torch_depthwise_us(const ConvTProblem& problem, const DeviceInfo& device);

}  // namespace convt
