#include "binding/arguments.h"

#include <torch/headeronly/util/Exception.h>

#include <string>

namespace convt::binding {
namespace {

Axis make_axis(const char* name, int index, int64_t in, int64_t kernel, const ConvArguments& arguments) {
  const int64_t stride = arguments.stride[index], padding = arguments.padding[index];
  const int64_t output_padding = arguments.output_padding[index], dilation = arguments.dilation[index];
  STD_TORCH_CHECK(stride > 0, "convt_ext: stride[", index, "] must be positive, got ", stride);
  STD_TORCH_CHECK(dilation > 0, "convt_ext: dilation[", index, "] must be positive, got ", dilation);
  STD_TORCH_CHECK(padding >= 0, "convt_ext: padding[", index, "] must not be negative, got ", padding);
  STD_TORCH_CHECK(output_padding >= 0 && (output_padding < stride || output_padding < dilation),
                  "convt_ext: output_padding[", index, "] must be at least 0 and smaller than stride or dilation, got ",
                  output_padding);
  STD_TORCH_CHECK(in > 0 && kernel > 0, "convt_ext: input and weight must not be empty along ", name, ", got ", in,
                  " and ", kernel);
  STD_TORCH_CHECK(fits_axis(in, 0, kernel, stride, padding, dilation) && (in - 1) < (int64_t{1} << 40) / stride,
                  "convt_ext: sizes along ", name, " must stay below 2^29");
  const int64_t out = (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1;
  STD_TORCH_CHECK(out >= 0, "convt_ext: the output would have size ", out, " along ", name, "; padding is too large");
  STD_TORCH_CHECK(fits_axis(in, out, kernel, stride, padding, dilation), "convt_ext: the output size along ", name,
                  " must stay below 2^29, got ", out);
  auto narrow = [](int64_t value) { return static_cast<int32_t>(value); };
  return Axis{narrow(in), narrow(out), narrow(kernel), narrow(stride), narrow(padding), narrow(dilation)};
}

void check_lists(const ConvArguments& arguments) {
  for (const auto* list : {&arguments.stride, &arguments.padding, &arguments.output_padding, &arguments.dilation}) {
    STD_TORCH_CHECK(list->size() == 2,
                    "convt_ext: stride, padding, output_padding and dilation must be 2 long, got a list of ",
                    list->size());
  }
}

// The whole number of steps that lead to `distance`, plus one.
int64_t size_of(const char* name, const char* axis, int64_t distance, int64_t step, int64_t out) {
  STD_TORCH_CHECK(step > 0 && distance >= 0 && distance % step == 0, "convt_ext: no ", name,
                  " gives grad_output's size ", out, " along ", axis, " with these arguments");
  return distance / step + 1;
}

}  // namespace

int64_t input_size_of(int index, int64_t out, int64_t kernel, const ConvArguments& arguments) {
  check_lists(arguments);
  const int64_t distance = out - 1 - arguments.output_padding[index] - arguments.dilation[index] * (kernel - 1) +
                           2 * arguments.padding[index];
  return size_of("input", index == 0 ? "H" : "W", distance, arguments.stride[index], out);
}

int64_t kernel_size_of(int index, int64_t out, int64_t in, const ConvArguments& arguments) {
  check_lists(arguments);
  const int64_t distance =
      out - 1 - arguments.output_padding[index] - arguments.stride[index] * (in - 1) + 2 * arguments.padding[index];
  return size_of("weight", index == 0 ? "H" : "W", distance, arguments.dilation[index], out);
}

ConvTProblem make_problem(const int64_t* x_sizes, const int64_t* w_sizes, bool has_bias, DataType dtype,
                          const ConvArguments& arguments) {
  check_lists(arguments);
  STD_TORCH_CHECK(arguments.precision >= 0 && arguments.precision <= static_cast<int64_t>(Precision::kHalf),
                  "convt_ext: precision must be 0 (ieee), 1 (aten), 2 (tf32x3), 3 (tf32) or 4 (half), got ",
                  arguments.precision);
  constexpr int64_t kMaxChannels = int64_t{1} << 30;
  const int64_t groups = arguments.groups;
  STD_TORCH_CHECK(groups > 0 && x_sizes[1] > 0 && x_sizes[1] < kMaxChannels && x_sizes[1] % groups == 0,
                  "convt_ext: groups must divide the input's channels, got groups ", groups, " and ", x_sizes[1],
                  " channels");
  STD_TORCH_CHECK(w_sizes[0] == x_sizes[1], "convt_ext: weight.size(0) must be the input's ", x_sizes[1],
                  " channels, got ", w_sizes[0]);
  STD_TORCH_CHECK(w_sizes[1] > 0 && w_sizes[1] < kMaxChannels / groups,
                  "convt_ext: weight.size(1) must be positive, got ", w_sizes[1]);
  STD_TORCH_CHECK(x_sizes[0] >= 0 && x_sizes[0] < kMaxChannels, "convt_ext: batch must stay below 2^30, got ",
                  x_sizes[0]);

  ConvTProblem problem{};
  problem.batch = x_sizes[0];
  problem.c_in = x_sizes[1];
  problem.c_out = w_sizes[1] * groups;
  problem.groups = groups;
  problem.h = make_axis("H", 0, x_sizes[2], w_sizes[2], arguments);
  problem.w = make_axis("W", 1, x_sizes[3], w_sizes[3], arguments);
  problem.dtype = dtype;
  problem.precision = static_cast<Precision>(arguments.precision);
  problem.has_bias = has_bias;
  return problem;
}

}  // namespace convt::binding
