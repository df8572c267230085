// The CUDA implementation of convt_ext::grad_input, grad_weight and grad_bias: checks, result, plan, launch.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "binding/call.h"
#include "reduce/launch.h"

namespace convt::binding {
namespace {

using torch::stable::Tensor;

// A problem of these sizes. Its result has dense strides; grad_output keeps its strides.
struct Gradient {
  ConvTProblem problem;
  Shapes shapes;
};

Gradient make_gradient(Direction direction, const Tensor& grad_output, const int64_t* x_sizes, const int64_t* w_sizes,
                       const ConvArguments& arguments) {
  Gradient gradient;
  gradient.problem = make_problem(x_sizes, w_sizes, false, data_type_of("grad_output", grad_output), arguments);
  gradient.problem.direction = direction;
  gradient.shapes = shapes_of(gradient.problem);
  for (int i = 0; i < 4; ++i) {
    STD_TORCH_CHECK(grad_output.size(i) == gradient.shapes.y[i], "convt_ext: grad_output.size(", i, ") must be ",
                    gradient.shapes.y[i], " for these sizes and arguments, got ", grad_output.size(i));
    gradient.problem.y_stride[i] = grad_output.stride(i);
  }
  return gradient;
}

// Candidate indices refer to a dense grad_output. For other strides, returns 0: the planner's choice.
int64_t preferred_of(const Gradient& gradient, const ConvArguments& arguments, int direction) {
  if (arguments.preferred[direction] == 0) return 0;
  ConvTProblem dense = gradient.problem, given = gradient.problem;
  fill_dense_strides(gradient.shapes.y, arguments.channels_last, dense.y_stride);
  settle_strides(&dense), settle_strides(&given);
  return std::equal(given.y_stride, given.y_stride + 4, dense.y_stride) ? arguments.preferred[direction] : 0;
}

void* read_only(const Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

Tensor empty_bias(const Tensor& grad_output) {
  const int64_t channels = grad_output.size(1), step = 1;
  return empty_result(1, &channels, &step, grad_output);
}

// Sums grad_output by channel in a separate kernel.
void add_up(const Tensor& grad_output, Tensor* grad_bias) {
  if (grad_bias->numel() == 0) return;
  ChannelSum sum{};
  sum.dtype = data_type_of("grad_output", grad_output);
  for (int i = 0; i < 4; ++i) {
    sum.size[i] = grad_output.size(i);
    sum.stride[i] = grad_output.stride(i);
  }
  const int32_t device = grad_output.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (grad_output.numel() == 0) return fill_zero(*grad_bias);
  Tensor workspace = empty_workspace(workspace_bytes(sum), device);
  launch_channel_sum(sum, grad_output.const_data_ptr(), workspace.mutable_data_ptr(), grad_bias->mutable_data_ptr(),
                     current_stream(device));
}

}  // namespace

Tensor run_grad_input(const Tensor& grad_output, const Tensor& weight, const ConvArguments& arguments,
                      std::optional<int64_t> only) {
  check_tensor("grad_output", grad_output, "(N, C_out, OH, OW)");
  check_tensor("weight", weight, "(C_in, C_out / groups, kH, kW)");
  check_matches("weight", weight, "grad_output", grad_output);
  const int64_t x_sizes[4] = {grad_output.size(0), weight.size(0),
                              input_size_of(0, grad_output.size(2), weight.size(2), arguments),
                              input_size_of(1, grad_output.size(3), weight.size(3), arguments)};
  Gradient gradient = make_gradient(Direction::kGradInput, grad_output, x_sizes, weight.sizes().data(), arguments);
  ConvTProblem& problem = gradient.problem;
  fill_dense_strides(gradient.shapes.x, arguments.channels_last, problem.x_stride);
  for (int i = 0; i < 4; ++i) problem.w_stride[i] = weight.stride(i);
  Tensor result = empty_result(4, gradient.shapes.x, problem.x_stride, grad_output);
  if (result.numel() == 0) return result;
  const int32_t device = grad_output.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (grad_output.numel() == 0) {
    fill_zero(result);
    return result;
  }
  Pointers pointers{};
  pointers.x = result.mutable_data_ptr();
  pointers.w = read_only(weight);
  pointers.y = read_only(grad_output);
  run_plan(problem, {only, preferred_of(gradient, arguments, 1)}, pointers, device);
  return result;
}

Tensor run_grad_weight(const Tensor& grad_output, const Tensor& input, const ConvArguments& arguments,
                       std::optional<int64_t> only, Tensor* grad_bias) {
  check_tensor("grad_output", grad_output, "(N, C_out, OH, OW)");
  check_tensor("input", input, "(N, C_in, H, W)");
  check_matches("input", input, "grad_output", grad_output);
  STD_TORCH_CHECK(arguments.groups > 0 && grad_output.size(1) % arguments.groups == 0,
                  "convt_ext: groups must divide grad_output's channels, got groups ", arguments.groups, " and ",
                  grad_output.size(1), " channels");
  const int64_t w_sizes[4] = {input.size(1), grad_output.size(1) / arguments.groups,
                              kernel_size_of(0, grad_output.size(2), input.size(2), arguments),
                              kernel_size_of(1, grad_output.size(3), input.size(3), arguments)};
  Gradient gradient = make_gradient(Direction::kGradWeight, grad_output, input.sizes().data(), w_sizes, arguments);
  ConvTProblem& problem = gradient.problem;
  fill_dense_strides(gradient.shapes.w, arguments.channels_last, problem.w_stride);
  for (int i = 0; i < 4; ++i) problem.x_stride[i] = input.stride(i);
  Tensor result = empty_result(4, gradient.shapes.w, problem.w_stride, grad_output);
  const int32_t device = grad_output.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  if (grad_bias != nullptr) *grad_bias = empty_bias(grad_output);
  if (grad_output.numel() == 0 || input.numel() == 0) {
    fill_zero(result);
    if (grad_bias != nullptr) add_up(grad_output, grad_bias);
    return result;
  }
  Pointers pointers{};
  pointers.x = read_only(input);
  pointers.w = result.mutable_data_ptr();
  pointers.y = read_only(grad_output);
  if (grad_bias != nullptr) pointers.grad_bias = grad_bias->mutable_data_ptr();
  const bool has_bias = run_plan(problem, {only, preferred_of(gradient, arguments, 2)}, pointers, device);
  if (grad_bias != nullptr && !has_bias) add_up(grad_output, grad_bias);
  return result;
}

Tensor run_grad_bias(const Tensor& grad_output) {
  check_tensor("grad_output", grad_output, "(N, C_out, OH, OW)");
  Tensor result = empty_bias(grad_output);
  add_up(grad_output, &result);
  return result;
}

namespace {

Tensor grad_input(const Tensor& grad_output, const Tensor& weight, const std::vector<int64_t>& stride,
                  const std::vector<int64_t>& padding, const std::vector<int64_t>& output_padding, int64_t groups,
                  const std::vector<int64_t>& dilation, int64_t precision, bool channels_last) {
  return run_grad_input(grad_output, weight,
                        {stride, padding, output_padding, groups, dilation, precision, channels_last});
}

Tensor grad_weight(const Tensor& grad_output, const Tensor& input, const std::vector<int64_t>& stride,
                   const std::vector<int64_t>& padding, const std::vector<int64_t>& output_padding, int64_t groups,
                   const std::vector<int64_t>& dilation, int64_t precision, bool channels_last) {
  return run_grad_weight(grad_output, input,
                         {stride, padding, output_padding, groups, dilation, precision, channels_last});
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) {
  library.impl("grad_input", TORCH_BOX(&grad_input));
  library.impl("grad_weight", TORCH_BOX(&grad_weight));
  library.impl("grad_bias", TORCH_BOX(&run_grad_bias));
}

}  // namespace
}  // namespace convt::binding
