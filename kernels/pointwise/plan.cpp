// Candidates of the pointwise engine.
#include "plan/plan.h"

#include <algorithm>

#include "pointwise/layout.h"

namespace convt {

bool make_pointwise_layout(const ConvTProblem& problem, PointwiseLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  const auto is_plain = [](const Axis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0 && axis.out == axis.in;
  };
  constexpr int64_t kMost = 1 << 20;
  if (problem.direction != Direction::kForward || problem.groups != 1 || !is_plain(h) || !is_plain(w)) return false;
  if (problem.batch > kMost || problem.c_out > kMost || problem.c_in > kMost) return false;
  const int64_t image = int64_t{h.out} * w.out;
  if (image < 1 || image > kMost || problem.batch * problem.c_out < 1) return false;
  if (problem.batch * problem.c_out > (int64_t{1} << 30) / image) return false;
  std::copy_n(problem.x_stride, 4, layout->source_stride);
  std::copy_n(problem.y_stride, 4, layout->result_stride);
  std::copy_n(problem.w_stride, 2, layout->weight_stride);
  layout->channels = static_cast<int32_t>(problem.c_in);
  layout->results = static_cast<int32_t>(problem.batch * problem.c_out * image);
  layout->by_columns = Divisor::of(w.out);
  layout->by_rows = Divisor::of(h.out);
  layout->by_channels = Divisor::of(static_cast<int32_t>(problem.c_out));
  layout->num_blocks = ceil_div(layout->results, kPointwiseThreads);
  return true;
}

void add_pointwise_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  PointwiseLayout layout;
  if (problem.dtype != DataType::kFloat32 || !make_pointwise_layout(problem, &layout)) return;
  Plan plan = begin_plan(kPointwiseInstances[0].name, Precision::kIeee, PointwiseTile{0});
  plan.threads = kPointwiseThreads;
  plan.num_blocks = layout.num_blocks;
  plan.compute_us = static_cast<double>(layout.results) * layout.channels * 0.5 / (device.num_sms * 1e3);
  plan.estimate_us = 5 + plan.compute_us;
  plans->push_back(plan);
}

}  // namespace convt
