// The CUDA implementation of convt_ext::grad_input, grad_weight and grad_bias: checks, result, plan, launch.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
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
  const int depth = arguments.dims() - 2;
  const auto check_size = [&grad_output](int axis, int64_t expected) {
    STD_TORCH_CHECK(grad_output.size(axis) == expected, "convt_ext: grad_output.size(", axis, ") must be ", expected,
                    " for these sizes and arguments, got ", grad_output.size(axis));
  };
  for (int i = 0; i < 4; ++i) check_size(i < 2 ? i : i + depth, gradient.shapes.y[i]);
  if (depth == 1) check_size(2, gradient.problem.d.out);
  read_strides(grad_output, gradient.problem.y_stride, &gradient.problem.y_plane);
  return gradient;
}

// Candidate indices refer to a dense grad_output. For other strides, returns 0: the planner's choice.
int64_t preferred_of(const Gradient& gradient, const ConvArguments& arguments, int direction) {
  if (arguments.preferred[direction] == 0) return 0;
  ConvTProblem dense = gradient.problem, given = gradient.problem;
  dense.y_plane = fill_dense_strides(gradient.shapes.y, arguments.channels_last, dense.y_stride, dense.d.out);
  settle_strides(&dense), settle_strides(&given);
  const bool same = std::equal(given.y_stride, given.y_stride + 4, dense.y_stride) && given.y_plane == dense.y_plane;
  return same ? arguments.preferred[direction] : 0;
}

void* read_only(const Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

Tensor empty_bias(const Tensor& grad_output) {
  const int64_t channels = grad_output.size(1), step = 1;
  return empty_result(1, &channels, &step, grad_output);
}

// Sums grad_output by channel in a separate kernel. Planes must be further rows.
void add_up(const Tensor& asked, Tensor* grad_bias) {
  if (grad_bias->numel() == 0) return;
  const bool joined = asked.dim() == 4 || asked.stride(2) == asked.size(3) * asked.stride(3);
  const Tensor grad_output = joined ? asked : torch::stable::contiguous(asked);
  ChannelSum sum{};
  sum.dtype = data_type_of("grad_output", grad_output);
  int64_t plane;
  read_strides(grad_output, sum.stride, &plane);
  const int depth = static_cast<int>(grad_output.dim()) - 4;
  for (int i = 0; i < 4; ++i) sum.size[i] = grad_output.size(i < 2 ? i : i + depth);
  if (depth == 1) sum.size[2] *= grad_output.size(2);
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
  const int dims = arguments.dims();
  check_tensor("grad_output", grad_output, dims, "(N, C_out, OD, OH, OW)");
  check_tensor("weight", weight, dims, "(C_in, C_out / groups, kD, kH, kW)");
  check_matches("weight", weight, "grad_output", grad_output);
  int64_t x_sizes[5] = {grad_output.size(0), weight.size(0)};
  for (int i = 0; i < dims; ++i) {
    x_sizes[2 + i] = input_size_of(i, grad_output.size(2 + i), weight.size(2 + i), arguments);
  }
  Gradient gradient = make_gradient(Direction::kGradInput, grad_output, x_sizes, weight.sizes().data(), arguments);
  ConvTProblem& problem = gradient.problem;
  problem.x_plane = fill_dense_strides(gradient.shapes.x, arguments.channels_last, problem.x_stride, problem.d.in);
  read_strides(weight, problem.w_stride, &problem.w_plane);
  Tensor result = empty_dense(dims, gradient.shapes.x, problem.x_stride, problem.d.in, problem.x_plane, grad_output);
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
  const int dims = arguments.dims();
  check_tensor("grad_output", grad_output, dims, "(N, C_out, OD, OH, OW)");
  check_tensor("input", input, dims, "(N, C_in, D, H, W)");
  check_matches("input", input, "grad_output", grad_output);
  STD_TORCH_CHECK(arguments.groups > 0 && grad_output.size(1) % arguments.groups == 0,
                  "convt_ext: groups must divide grad_output's channels, got groups ", arguments.groups, " and ",
                  grad_output.size(1), " channels");
  int64_t w_sizes[5] = {input.size(1), grad_output.size(1) / arguments.groups};
  for (int i = 0; i < dims; ++i) {
    w_sizes[2 + i] = kernel_size_of(i, grad_output.size(2 + i), input.size(2 + i), arguments);
  }
  Gradient gradient = make_gradient(Direction::kGradWeight, grad_output, input.sizes().data(), w_sizes, arguments);
  ConvTProblem& problem = gradient.problem;
  problem.w_plane = fill_dense_strides(gradient.shapes.w, arguments.channels_last, problem.w_stride, problem.d.kernel);
  read_strides(input, problem.x_stride, &problem.x_plane);
  Tensor result =
      empty_dense(dims, gradient.shapes.w, problem.w_stride, problem.d.kernel, problem.w_plane, grad_output);
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
  check_tensor("grad_output", grad_output, grad_output.dim() == 5 ? 3 : 2, "(N, C_out, OD, OH, OW)");
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
