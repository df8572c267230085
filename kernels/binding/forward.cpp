// The CUDA implementation of convt_ext::forward: checks, output, plan, launch.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "binding/call.h"

namespace convt::binding {
namespace {

using torch::stable::Tensor;

// Runs candidate `only`, or the planner's choice. `packed`: caller's memory for the packed weight, or null.
Tensor run(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, const ConvArguments& arguments,
           std::optional<int64_t> only, Tensor* packed = nullptr, bool is_packed = false,
           const EpilogueArguments* steps = nullptr) {
  const int dims = arguments.dims();
  check_tensor("input", input, dims, "(N, C, D, H, W)");
  check_tensor("weight", weight, dims, "(C_in, C_out / groups, kD, kH, kW)");
  check_matches("weight", weight, "input", input);
  ConvTProblem problem = make_problem(input.sizes().data(), weight.sizes().data(), bias.has_value(),
                                      data_type_of("input", input), arguments);
  if (bias.has_value()) {
    check_matches("bias", *bias, "input", input);
    STD_TORCH_CHECK(bias->dim() == 1 && bias->size(0) == problem.c_out, "convt_ext: bias must have shape [",
                    problem.c_out, "]");
  }
  const Shapes shapes = shapes_of(problem);
  problem.y_plane = fill_dense_strides(shapes.y, arguments.channels_last, problem.y_stride, problem.d.out);
  read_strides(input, problem.x_stride, &problem.x_plane);
  read_strides(weight, problem.w_stride, &problem.w_plane);
  Tensor output = empty_dense(dims, shapes.y, problem.y_stride, problem.d.out, problem.y_plane, input);
  if (output.numel() == 0) return output;

  const int32_t device = input.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Tensor contiguous_bias =
      bias.has_value() && !bias->is_contiguous() ? torch::stable::contiguous(*bias) : bias.value_or(input);
  Pointers pointers{};
  pointers.x = const_cast<void*>(input.const_data_ptr());  // const access does not materialize a lazily cloned tensor
  pointers.w = const_cast<void*>(weight.const_data_ptr());
  pointers.bias = bias.has_value() ? contiguous_bias.const_data_ptr() : nullptr;
  pointers.y = output.mutable_data_ptr();
  pointers.is_packed = is_packed;
  std::optional<Epilogue> epilogue;
  if (steps != nullptr) {
    const int64_t planes = dims == 3 ? problem.d.out : 0;
    epilogue.emplace(*steps, shapes.y, problem.y_stride, planes, problem.dtype, device);
  }
  run_plan(problem, {only, arguments.preferred[0]}, pointers, device, packed,
           epilogue.has_value() ? &*epilogue : nullptr);
  if (packed != nullptr && !is_packed) wait_for_stream(device);  // other streams may read it afterwards
  return output;
}

}  // namespace

Tensor run_forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const ConvArguments& arguments, std::optional<int64_t> only, const EpilogueArguments* epilogue) {
  return run(input, weight, bias, arguments, only, nullptr, false, epilogue);
}

Tensor run_forward_packed(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          const ConvArguments& arguments, Tensor packed, bool is_packed,
                          const EpilogueArguments* epilogue) {
  STD_TORCH_CHECK(packed.is_cuda() && packed.get_device_index() == input.get_device_index() && packed.is_contiguous(),
                  "convt_ext: packed must be contiguous and on the GPU of input, ", input.get_device_index());
  return run(input, weight, bias, arguments, std::nullopt, &packed, is_packed, epilogue);
}

namespace {

Tensor forward(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
               const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
               const std::vector<int64_t>& output_padding, int64_t groups, const std::vector<int64_t>& dilation,
               int64_t precision, bool channels_last) {
  return run_forward(input, weight, bias,
                     {stride, padding, output_padding, groups, dilation, precision, channels_last});
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CUDA, library) { library.impl("forward", TORCH_BOX(&forward)); }

}  // namespace
}  // namespace convt::binding
