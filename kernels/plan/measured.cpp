#include "plan/measured.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "plan/plan.h"
#include "problem/shapes.h"

namespace convt {
namespace {

MeasuredTable table_of(Direction direction) {
  switch (direction) {
    case Direction::kForward: return measured_forward();
    case Direction::kGradInput: return measured_grad_input();
    case Direction::kGradWeight: return measured_grad_weight();
  }
  return {nullptr, nullptr};
}

// The GPU of the measurements. Others of its capability have less bandwidth for the same arithmetic.
bool is_h200(const DeviceInfo& device) {
  return device.compute_capability == 90 && device.num_sms == 132 && device.copy_gb_per_s > 3900;
}

// The stride of an axis of size 1 means nothing.
bool has_dense_strides(const int64_t* stride, const int64_t (&sizes)[4], bool channels_last) {
  int64_t dense[4];
  fill_dense_strides(sizes, channels_last, dense);
  for (int axis = 0; axis < 4; ++axis) {
    if (sizes[axis] > 1 && stride[axis] != dense[axis]) return false;
  }
  return true;
}

bool same_axis(const Axis& a, const Axis& b) {
  return a.in == b.in && a.out == b.out && a.kernel == b.kernel && a.stride == b.stride && a.padding == b.padding &&
         a.dilation == b.dilation;
}

template <typename Row>
bool is_of(const Row& row, const ConvTProblem& problem) {
  const int64_t numbers[4] = {problem.batch, problem.c_in, problem.c_out, problem.groups};
  if (row.precision != problem.precision || !std::equal(numbers, numbers + 4, row.sizes) ||
      !same_axis(row.h, problem.h) || !same_axis(row.w, problem.w)) {
    return false;
  }
  if (row.precision != Precision::kHalf && problem.dtype != DataType::kFloat32) return false;
  const Shapes shapes = shapes_of(problem);
  return has_dense_strides(problem.x_stride, shapes.x, row.channels_last) &&
         has_dense_strides(problem.w_stride, shapes.w, row.channels_last) &&
         has_dense_strides(problem.y_stride, shapes.y, row.channels_last);
}

bool same_kernel(std::string_view measured, std::string_view kernel) {
  if (measured == kernel) return true;
  const size_t at = measured.find("bf16");  // "bf16" without its b
  return at != std::string_view::npos && kernel.size() + 1 == measured.size() &&
         kernel.substr(0, at) == measured.substr(0, at) && kernel.substr(at) == measured.substr(at + 1);
}

PlanSignature signature_of(const Plan& plan) {
  PlanSignature signature{plan.kernel, plan.threads, plan.shared_bytes, plan.num_blocks, 0, 0};
  visit_fields(plan.tile, [&](std::string_view name, auto value) {
    if constexpr (std::is_arithmetic_v<decltype(value)>) {
      if (name == "num_tiles") signature.num_tiles = value;
      if (name == "tile_h") signature.tile_h = static_cast<int32_t>(value);
    }
  });
  // Of families whose CTAs do not walk over tiles rows say nothing, and have 0.
  if (signature.num_tiles == 0) signature.tile_h = 0;
  return signature;
}

bool same_plan(const PlanSignature& measured, const PlanSignature& plan) {
  return same_kernel(measured.kernel, plan.kernel) && measured.threads == plan.threads &&
         measured.shared_bytes == plan.shared_bytes && measured.num_blocks == plan.num_blocks &&
         measured.num_tiles == plan.num_tiles && measured.tile_h == plan.tile_h;
}

}  // namespace

double measured_torch_us(const ConvTProblem& problem, const DeviceInfo& device) {
  if (!is_h200(device)) return 0;
  const MeasuredTorchTable table = measured_torch();
  const auto* row = std::find_if(table.begin, table.end, [&](const MeasuredTorch& one) {
    return one.direction == problem.direction && is_of(one, problem);
  });
  return row == table.end ? 0 : row->torch_us;
}

void put_measured_first(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (!is_h200(device)) return;
  const MeasuredTable table = table_of(problem.direction);
  const auto* row = std::find_if(table.begin, table.end, [&](const MeasuredPlan& one) { return is_of(one, problem); });
  if (row == table.end) return;
  const auto plan = std::find_if(plans->begin(), plans->end(),
                                 [&](const Plan& one) { return same_plan(row->plan, signature_of(one)); });
  if (plan == plans->end()) return;
  plan->estimate_us = row->measured_us;
  plan->measured = true;
  std::rotate(plans->begin(), plan, plan + 1);
}

}  // namespace convt
