// Ops without tensors: the plan of a problem, the numbers of a GPU, what this binary is.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "binding/arguments.h"
#include "binding/device.h"
#include "plan/plan.h"

namespace convt::binding {
namespace {

// The six numbers of a DeviceInfo as integers: clock in MHz, bandwidth in GB/s.
std::vector<int64_t> to_list(const DeviceInfo& info) {
  return {info.compute_capability,
          info.num_sms,
          info.shared_per_block,
          info.shared_per_sm,
          std::llround(info.clock_ghz * 1e3),
          std::llround(info.copy_gb_per_s)};
}

DeviceInfo from_list(const std::vector<int64_t>& list) {
  STD_TORCH_CHECK(list.size() == 6,
                  "convt_ext: device must be [compute_capability, num_sms, shared_per_block, shared_per_sm, clock_mhz, "
                  "copy_gb_per_s], got a list of ",
                  list.size());
  for (const int64_t number : list) {
    STD_TORCH_CHECK(number > 0 && number <= INT32_MAX, "convt_ext: device numbers must be positive, got ", number);
  }
  auto narrow = [&list](int index) { return static_cast<int32_t>(list[index]); };
  return DeviceInfo{narrow(0), narrow(1), narrow(2), narrow(3), list[4] * 1e-3, static_cast<double>(list[5])};
}

std::string plan(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
                 const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride, bool has_bias,
                 const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                 const std::vector<int64_t>& output_padding, int64_t groups, const std::vector<int64_t>& dilation,
                 int64_t dtype, int64_t precision, bool channels_last, const std::vector<int64_t>& device,
                 int64_t direction) {
  for (const auto* list : {&input_size, &input_stride, &weight_size, &weight_stride}) {
    STD_TORCH_CHECK(list->size() == 4, "convt_ext: sizes and strides must be 4 long, got a list of ", list->size());
  }
  STD_TORCH_CHECK(dtype >= 0 && dtype <= static_cast<int64_t>(DataType::kBFloat16),
                  "convt_ext: dtype must be 0 (float32), 1 (float64), 2 (float16) or 3 (bfloat16), got ", dtype);
  STD_TORCH_CHECK(direction >= 0 && direction <= static_cast<int64_t>(Direction::kGradWeight),
                  "convt_ext: direction must be 0 (forward), 1 (grad_input) or 2 (grad_weight), got ", direction);
  ConvTProblem problem = make_problem(input_size.data(), weight_size.data(), has_bias, static_cast<DataType>(dtype),
                                      {stride, padding, output_padding, groups, dilation, precision, channels_last});
  problem.direction = static_cast<Direction>(direction);
  std::copy_n(input_stride.data(), 4, problem.x_stride);
  std::copy_n(weight_stride.data(), 4, problem.w_stride);
  const Shapes shapes = shapes_of(problem);
  fill_dense_strides(shapes.y, channels_last, problem.y_stride);
  if (problem.direction == Direction::kGradInput) fill_dense_strides(shapes.x, channels_last, problem.x_stride);
  if (problem.direction == Direction::kGradWeight) fill_dense_strides(shapes.w, channels_last, problem.w_stride);
  STD_TORCH_CHECK(problem.batch > 0 && problem.h.out > 0 && problem.w.out > 0,
                  "convt_ext: an empty output has no plan");
  return to_json(problem, from_list(device));
}

std::vector<int64_t> device(int64_t index) { return to_list(device_info(static_cast<int32_t>(index))); }

std::string build_info() {
  std::string architectures;
  std::string list = CONVT_ARCHITECTURES;  // "8.0;9.0a"
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(';', begin), list.size());
    architectures += (begin == 0 ? "\"" : ", \"") + list.substr(begin, end - begin) + "\"";
    begin = end + 1;
  }
  const int cuda = CUDART_VERSION;
  return "{\"version\": \"" CONVT_VERSION "\", \"cuda\": \"" + std::to_string(cuda / 1000) + "." +
         std::to_string(cuda % 1000 / 10) + "\", \"architectures\": [" + architectures +
         "], \"sources\": \"" CONVT_SOURCES_DIGEST "\"}";
}

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CompositeExplicitAutograd, library) {
  library.impl("plan", TORCH_BOX(&plan));
  library.impl("device", TORCH_BOX(&device));
  library.impl("build_info", TORCH_BOX(&build_info));
}

}  // namespace
}  // namespace convt::binding
