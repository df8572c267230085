// Ops without tensors: plans as numbers and text, and GPU parameters.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "binding/call.h"
#include "plan/cache.h"
#include "plan/plan.h"
#include "problem/volume.h"

namespace convt::binding {
namespace {

using torch::stable::Tensor;

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

// The problem and GPU of a query.
struct Question {
  ConvTProblem problem;
  DeviceInfo device;
};

Question make_question(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
                       const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride,
                       bool has_bias, const ConvArguments& arguments, int64_t dtype, const std::vector<int64_t>& device,
                       int64_t direction) {
  for (const auto* list : {&input_size, &input_stride, &weight_size, &weight_stride}) {
    STD_TORCH_CHECK(list->size() == arguments.stride.size() + 2, "convt_ext: sizes and strides must be ",
                    arguments.stride.size() + 2, " long, got a list of ", list->size());
  }
  STD_TORCH_CHECK(dtype >= 0 && dtype <= static_cast<int64_t>(DataType::kBFloat16),
                  "convt_ext: dtype must be 0 (float32), 1 (float64), 2 (float16) or 3 (bfloat16), got ", dtype);
  STD_TORCH_CHECK(direction >= 0 && direction <= static_cast<int64_t>(Direction::kGradWeight),
                  "convt_ext: direction must be 0 (forward), 1 (grad_input) or 2 (grad_weight), got ", direction);
  ConvTProblem problem =
      make_problem(input_size.data(), weight_size.data(), has_bias, static_cast<DataType>(dtype), arguments);
  problem.direction = static_cast<Direction>(direction);
  const size_t depth = arguments.stride.size() - 2;
  for (size_t i = 0; i < 4; ++i) {
    problem.x_stride[i] = input_stride[i < 2 ? i : i + depth];
    problem.w_stride[i] = weight_stride[i < 2 ? i : i + depth];
  }
  if (depth == 1) problem.x_plane = input_stride[2], problem.w_plane = weight_stride[2];
  const Shapes shapes = shapes_of(problem);
  const bool channels_last = arguments.channels_last;
  problem.y_plane = fill_dense_strides(shapes.y, channels_last, problem.y_stride, problem.d.out);
  if (problem.direction == Direction::kGradInput) {
    problem.has_bias = false;  // like a gradient call, which then uses this plan
    problem.x_plane = fill_dense_strides(shapes.x, channels_last, problem.x_stride, problem.d.in);
  }
  if (problem.direction == Direction::kGradWeight) {
    problem.has_bias = false;
    problem.w_plane = fill_dense_strides(shapes.w, channels_last, problem.w_stride, problem.d.kernel);
  }
  settle_strides(&problem);
  STD_TORCH_CHECK(problem.batch > 0 && problem.d.out > 0 && problem.h.out > 0 && problem.w.out > 0,
                  "convt_ext: an empty output has no plan");
  return {without_depth(problem), from_list(device)};
}

int64_t nanoseconds(double us) { return std::llround(us * 1e3); }

// No op returns a string: PyTorch does not free strings that pass its stable ABI (seen in 2.10 to 2.13).
std::vector<int64_t> plan(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
                          const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride,
                          bool has_bias, const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                          const std::vector<int64_t>& output_padding, int64_t groups,
                          const std::vector<int64_t>& dilation, int64_t dtype, int64_t precision, bool channels_last,
                          const std::vector<int64_t>& device, int64_t direction, int64_t preferred) {
  const Question asked = make_question(input_size, input_stride, weight_size, weight_stride, has_bias,
                                       {stride, padding, output_padding, groups, dilation, precision, channels_last},
                                       dtype, device, direction);
  try {
    const auto plans = preferred > 0 ? cached_plans(asked.problem, asked.device, preferred)
                                     : cached_choice(asked.problem, asked.device);
    const Plan& chosen = plans->front();
    return {nanoseconds(chosen.estimate_us), nanoseconds(torch_us(asked.problem, asked.device)), chosen.packed_bytes};
  } catch (const std::invalid_argument&) {
    return {};
  }
}

// Planning takes a millisecond, and a first training step needs three directions. Each of `others` runs in its own
// thread.
void plan_ahead(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
                const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride, bool has_bias,
                const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                const std::vector<int64_t>& output_padding, int64_t groups, const std::vector<int64_t>& dilation,
                int64_t dtype, int64_t precision, bool channels_last, const std::vector<int64_t>& device,
                int64_t direction, const std::vector<int64_t>& others) {
  const ConvArguments arguments{stride, padding, output_padding, groups, dilation, precision, channels_last};
  const auto ask = [&](int64_t one) {
    return make_question(input_size, input_stride, weight_size, weight_stride, has_bias, arguments, dtype, device, one);
  };
  std::vector<Question> questions{ask(direction)};
  for (const int64_t other : others) questions.push_back(ask(other));
  const auto remember = [](const Question& asked) {
    try {
      cached_choice(asked.problem, asked.device);
    } catch (const std::exception&) {  // plan() reports the error
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < questions.size(); ++i) threads.emplace_back(remember, std::cref(questions[i]));
  remember(questions.front());
  for (std::thread& thread : threads) thread.join();
}

std::vector<int64_t> contenders(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
                                const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride,
                                bool has_bias, const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                                const std::vector<int64_t>& output_padding, int64_t groups,
                                const std::vector<int64_t>& dilation, int64_t dtype, int64_t precision,
                                bool channels_last, const std::vector<int64_t>& device, int64_t direction) {
  constexpr size_t kMost = 6;
  const Question asked = make_question(input_size, input_stride, weight_size, weight_stride, has_bias,
                                       {stride, padding, output_padding, groups, dilation, precision, channels_last},
                                       dtype, device, direction);
  std::vector<int64_t> answer;
  try {
    const std::vector<Plan>& plans = all_candidates(asked.problem, asked.device);
    for (const size_t number : convt::contenders(plans, kMost)) {
      answer.insert(answer.end(), {static_cast<int64_t>(number), nanoseconds(plans[number].estimate_us),
                                   plans[number].workspace_bytes});
    }
  } catch (const std::invalid_argument&) {
  }
  return answer;
}

Tensor explain(const std::vector<int64_t>& input_size, const std::vector<int64_t>& input_stride,
               const std::vector<int64_t>& weight_size, const std::vector<int64_t>& weight_stride, bool has_bias,
               const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
               const std::vector<int64_t>& output_padding, int64_t groups, const std::vector<int64_t>& dilation,
               int64_t dtype, int64_t precision, bool channels_last, const std::vector<int64_t>& device,
               int64_t direction) {
  const Question asked = make_question(input_size, input_stride, weight_size, weight_stride, has_bias,
                                       {stride, padding, output_padding, groups, dilation, precision, channels_last},
                                       dtype, device, direction);
  const std::string text = to_json(asked.problem, asked.device);
  const auto size = static_cast<int64_t>(text.size());
  const int64_t step = 1;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(1, &size, &step, aoti_torch_dtype_uint8(), aoti_torch_device_type_cpu(), 0, &handle));
  Tensor bytes(handle);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::vector<int64_t> plan_cache_size() {
  const CacheSize size = convt::plan_cache_size();
  return {static_cast<int64_t>(size.entries), static_cast<int64_t>(size.bytes),
          static_cast<int64_t>(kMaxPlanCacheBytes)};
}

std::vector<int64_t> device(int64_t index) { return to_list(device_info(index)); }

STABLE_TORCH_LIBRARY_IMPL(convt_ext, CompositeExplicitAutograd, library) {
  library.impl("plan", TORCH_BOX(&plan));
  library.impl("plan_ahead", TORCH_BOX(&plan_ahead));
  library.impl("contenders", TORCH_BOX(&contenders));
  library.impl("explain", TORCH_BOX(&explain));
  library.impl("plan_cache_size", TORCH_BOX(&plan_cache_size));
  library.impl("device", TORCH_BOX(&device));
}

}  // namespace
}  // namespace convt::binding
