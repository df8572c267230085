#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <string>

#include "binding/call.h"

namespace convt::binding {
namespace {

constexpr int64_t kAxisLimit = int64_t{1} << 29;     // fits_axis()
constexpr int64_t kChannelLimit = int64_t{1} << 30;  // also limits the batch

void check_axis(const char* what, const char* name, int64_t number) {
  STD_TORCH_CHECK(number < kAxisLimit, "convt_ext: ", what, " along ", name, " must stay below 2^29, got ", number);
}

// Checks that 64 bits can represent sums and products of a few values of an axis.
void check_numbers(const char* name, int index, int64_t size, int64_t kernel, const ConvArguments& arguments) {
  const int64_t stride = arguments.stride[index], padding = arguments.padding[index];
  const int64_t output_padding = arguments.output_padding[index], dilation = arguments.dilation[index];
  STD_TORCH_CHECK(stride > 0, "convt_ext: stride[", index, "] must be positive, got ", stride);
  STD_TORCH_CHECK(dilation > 0, "convt_ext: dilation[", index, "] must be positive, got ", dilation);
  STD_TORCH_CHECK(padding >= 0, "convt_ext: padding[", index, "] must not be negative, got ", padding);
  STD_TORCH_CHECK(output_padding >= 0 && (output_padding < stride || output_padding < dilation),
                  "convt_ext: output_padding[", index, "] must be at least 0 and smaller than stride or dilation, got ",
                  output_padding);
  check_axis("the size", name, size);
  check_axis("the kernel's size", name, kernel);
  check_axis("stride", name, stride);
  check_axis("padding", name, padding);
  check_axis("dilation", name, dilation);
  STD_TORCH_CHECK(kernel < 1 || (kernel - 1) * dilation < kAxisLimit, "convt_ext: dilation * (kernel size - 1) along ",
                  name, " must stay below 2^29, got ", dilation, " * ", kernel - 1);
}

Axis make_axis(const char* name, int index, int64_t in, int64_t kernel, const ConvArguments& arguments) {
  check_numbers(name, index, in, kernel, arguments);
  const int64_t stride = arguments.stride[index], padding = arguments.padding[index];
  const int64_t output_padding = arguments.output_padding[index], dilation = arguments.dilation[index];
  STD_TORCH_CHECK(in > 0 && kernel > 0, "convt_ext: input and weight must not be empty along ", name, ", got ", in,
                  " and ", kernel);
  const int64_t out = (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1;
  STD_TORCH_CHECK(out >= 0, "convt_ext: the output would have size ", out, " along ", name, "; padding is too large");
  check_axis("the output's size", name, out);
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  return Axis{narrow(in), narrow(out), narrow(kernel), narrow(stride), narrow(padding), narrow(dilation)};
}

void check_lists(const ConvArguments& arguments) {
  for (const auto* list : {&arguments.stride, &arguments.padding, &arguments.output_padding, &arguments.dilation}) {
    STD_TORCH_CHECK(
        list->size() == arguments.stride.size() && (list->size() == 2 || list->size() == 3),
        "convt_ext: stride, padding, output_padding and dilation must be all 2 or all 3 long, got a list of ",
        list->size());
  }
}

const char* axis_name(int index, const ConvArguments& arguments) {
  constexpr const char* kNames[] = {"D", "H", "W"};
  return kNames[3 - arguments.dims() + index];
}

// Number of steps of size `step` in `distance`, plus one.
int64_t size_of(const char* name, const char* axis, int64_t distance, int64_t step, int64_t out) {
  STD_TORCH_CHECK(step > 0 && distance >= 0 && distance % step == 0, "convt_ext: no ", name,
                  " gives grad_output's size ", out, " along ", axis, " with these arguments");
  return distance / step + 1;
}

}  // namespace

int64_t input_size_of(int index, int64_t out, int64_t kernel, const ConvArguments& arguments) {
  check_lists(arguments);
  const char* name = axis_name(index, arguments);
  check_numbers(name, index, out, kernel, arguments);
  const int64_t distance = out - 1 - arguments.output_padding[index] - arguments.dilation[index] * (kernel - 1) +
                           2 * arguments.padding[index];
  return size_of("input", name, distance, arguments.stride[index], out);
}

int64_t kernel_size_of(int index, int64_t out, int64_t in, const ConvArguments& arguments) {
  check_lists(arguments);
  const char* name = axis_name(index, arguments);
  check_numbers(name, index, std::max(out, in), 1, arguments);
  const int64_t distance =
      out - 1 - arguments.output_padding[index] - arguments.stride[index] * (in - 1) + 2 * arguments.padding[index];
  return size_of("weight", name, distance, arguments.dilation[index], out);
}

ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* w_sizes, bool has_bias, DataType dtype,
                          const ConvArguments& arguments) {
  check_lists(arguments);
  STD_TORCH_CHECK(arguments.precision >= 0 && arguments.precision <= static_cast<int64_t>(Precision::kHalf),
                  "convt_ext: precision must be 0 (ieee), 1 (aten), 2 (tf32x3), 3 (tf32) or 4 (half), got ",
                  arguments.precision);
  const int64_t groups = arguments.groups;
  STD_TORCH_CHECK(groups > 0, "convt_ext: groups must be positive, got ", groups);
  STD_TORCH_CHECK(x_sizes[1] > 0 && x_sizes[1] < kChannelLimit,
                  "convt_ext: the input's channels must be positive and stay below 2^30, got ", x_sizes[1]);
  STD_TORCH_CHECK(x_sizes[1] % groups == 0, "convt_ext: groups must divide the input's channels, got groups ", groups,
                  " and ", x_sizes[1], " channels");
  STD_TORCH_CHECK(w_sizes[0] == x_sizes[1], "convt_ext: weight.size(0) must be the input's ", x_sizes[1],
                  " channels, got ", w_sizes[0]);
  STD_TORCH_CHECK(w_sizes[1] > 0, "convt_ext: weight.size(1) must be positive, got ", w_sizes[1]);
  STD_TORCH_CHECK(w_sizes[1] <= (kChannelLimit - 1) / groups,
                  "convt_ext: weight.size(1) times groups, the output's channels, must stay below 2^30, got ",
                  w_sizes[1], " times ", groups);
  STD_TORCH_CHECK(x_sizes[0] >= 0 && x_sizes[0] < kChannelLimit,
                  "convt_ext: batch must not be negative and stay below 2^30, got ", x_sizes[0]);

  ConvTProblem problem{};
  problem.batch = x_sizes[0];
  problem.c_in = x_sizes[1];
  problem.c_out = w_sizes[1] * groups;
  problem.groups = groups;
  const int dims = arguments.dims();
  const auto axis = [&](int index) {
    return make_axis(axis_name(index, arguments), index, x_sizes[2 + index], w_sizes[2 + index], arguments);
  };
  if (dims == 3) problem.d = axis(0);
  problem.h = axis(dims - 2);
  problem.w = axis(dims - 1);
  problem.dtype = dtype;
  problem.precision = static_cast<Precision>(arguments.precision);
  problem.has_bias = has_bias;
  return problem;
}

}  // namespace convt::binding
