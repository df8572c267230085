// The CUDA implementation of convt_ext::forward: checks, output, plan, launch.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "binding/arguments.h"
#include "binding/device.h"
#include "launch/launch.h"
#include "plan/cache.h"

namespace convt::binding {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

DataType data_type_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return DataType::kFloat32;
    case ScalarType::Double: return DataType::kFloat64;
    case ScalarType::Half: return DataType::kFloat16;
    case ScalarType::BFloat16: return DataType::kBFloat16;
    default: break;
  }
  STD_TORCH_CHECK(false, "convt_ext: input must be float16, bfloat16, float32 or float64");
}

void check_matches(const char* name, const Tensor& tensor, const Tensor& input) {
  STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == input.get_device_index(), "convt_ext: ", name,
                  " must be on the input's GPU ", input.get_device_index());
  STD_TORCH_CHECK(tensor.scalar_type() == input.scalar_type(), "convt_ext: ", name, " must have the input's dtype");
}

Tensor empty_output(const OutputShape& shape, const Tensor& input) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(input.get(), &dtype));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(4, shape.sizes, shape.strides, dtype, aoti_torch_device_type_cuda(),
                                                  input.get_device_index(), &handle));
  return Tensor(handle);
}

// Runs that one of candidate_plans(); 0 is the planner's choice.
Tensor run_forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const ConvArguments& arguments, int64_t candidate) {
  STD_TORCH_CHECK(input.is_cuda(), "convt_ext: input must be a CUDA tensor");
  STD_TORCH_CHECK(input.dim() == 4, "convt_ext: input must be (N, C, H, W), got ", input.dim(), " dimensions");
  STD_TORCH_CHECK(weight.dim() == 4, "convt_ext: weight must be (C_in, C_out / groups, kH, kW), got ", weight.dim(),
                  " dimensions");
  check_matches("weight", weight, input);
  OutputShape shape;
  const ConvTProblem problem =
      make_problem(input.sizes().data(), input.strides().data(), weight.sizes().data(), weight.strides().data(),
                   bias.has_value(), data_type_of(input), arguments, &shape);
  if (bias.has_value()) {
    check_matches("bias", *bias, input);
    STD_TORCH_CHECK(bias->dim() == 1 && bias->size(0) == problem.c_out, "convt_ext: bias must have shape [",
                    problem.c_out, "]");
  }
  Tensor output = empty_output(shape, input);
  if (output.numel() == 0) return output;

  const int32_t device = input.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const auto plans = cached_plans(problem, device_info(device));
  STD_TORCH_CHECK(candidate < static_cast<int64_t>(plans->size()), "convt_ext: candidate must be below ", plans->size(),
                  ", got ", candidate);
  const Plan& plan = (*plans)[candidate];
  const Tensor contiguous_bias =
      bias.has_value() && !bias->is_contiguous() ? torch::stable::contiguous(*bias) : bias.value_or(input);
  launch_forward(
      problem, plan,
      ForwardPointers{input.const_data_ptr(), weight.const_data_ptr(),
                      bias.has_value() ? contiguous_bias.const_data_ptr() : nullptr, output.mutable_data_ptr()},
      current_stream(device));
  return output;
}

Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
               const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
               const std::vector<int64_t>& output_padding, int64_t groups, const std::vector<int64_t>& dilation,
               int64_t precision, bool channels_last) {
  return run_forward(input, weight, bias, {stride, padding, output_padding, groups, dilation, precision, channels_last},
                     0);
}

Tensor forward_candidate(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                         const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                         const std::vector<int64_t>& output_padding, int64_t groups,
                         const std::vector<int64_t>& dilation, int64_t precision, bool channels_last,
                         int64_t candidate) {
  STD_TORCH_CHECK(candidate >= 0, "convt_ext: candidate must not be negative, got ", candidate);
  return run_forward(input, weight, bias, {stride, padding, output_padding, groups, dilation, precision, channels_last},
                     candidate);
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) {
  library.impl("forward", TORCH_BOX(&forward));
  library.impl("forward_candidate", TORCH_BOX(&forward_candidate));
}

}  // namespace
}  // namespace convt::binding
