// Candidates for depthwise layers in NCHW, with estimated times.
#include "plan/plan.h"

#include <algorithm>

#include "depthwise/layout.h"
#include "plan/cost.h"

namespace convt {
namespace {

// Rows per warp. In the gradient of the weight they decide the order of the sums and depend only on the problem: as
// many as still give enough warps for a large GPU. In the other directions they are few, which shortens the last wave,
// and fewer still if SMs would be idle.
constexpr int64_t kEnoughWarps = 8192;
constexpr int32_t kFewestRows = 8;
constexpr int32_t kRows = 16;

int32_t rows_of_warps(const ConvTProblem& problem, const ThinDepthwiseInstance& instance) {
  const bool of_weight = problem.direction == Direction::kGradWeight;
  ThinDepthwiseLayout layout;
  if (!make_thin_depthwise_layout(problem, instance, 1, &layout)) return 0;
  int32_t rows = of_weight ? layout.num_rows : std::min(kRows, layout.num_rows);
  make_thin_depthwise_layout(problem, instance, rows, &layout);
  while (layout.num_warps < kEnoughWarps && rows > (of_weight ? kFewestRows : 2)) {
    rows = ceil_div(rows, 2);
    make_thin_depthwise_layout(problem, instance, rows, &layout);
  }
  return rows;
}

int64_t num_slabs(const ConvTProblem& problem, const ThinDepthwiseLayout& layout) {
  return problem.batch * layout.chunks * layout.strips;
}

// Estimates times on the reference GPU.
void estimate(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, const ThinDepthwiseLayout& layout,
              Plan* plan) {
  const DeviceInfo device = h200();
  const double taps = instance.kernel * instance.kernel,
               pixels = depthwise_columns(problem.dtype, problem.direction) / instance.stride;
  const double kept = instance.kernel - instance.stride;
  // Warp instructions per row of pixels: products, window edges, loads, moves, the rest. Rows of grad_output that are
  // not vector-aligned are loaded element by element.
  const bool on_vectors = problem.w.out % depthwise_columns(problem.dtype, problem.direction) == 0;
  const bool of_weight = problem.direction == Direction::kGradWeight;
  const bool of_input = problem.direction == Direction::kGradInput;
  const double load_slots = of_input && !on_vectors ? (element_bytes(problem.dtype) == 2 ? 170 : 85) : 0;
  const double row_slots = pixels * taps * 1.3 + instance.stride * (14 + 8 * kept + load_slots) + 6 * kept + 30;
  const double rows = static_cast<double>(layout.num_warps) * (layout.rows + kept);
  plan->compute_us = rows * row_slots / 4 / (of_weight ? 0.6 : 0.85) / device.num_sms / (device.clock_ghz * 1e3);
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double inputs = input_elements(problem);
  const double outputs = output_elements(problem);
  const double again = 1 + kept / instance.stride / layout.rows;
  // Element-wise accesses: stores of the result or loads of dW's operands in channels_last, and rows of y that are not
  // vector-aligned (measured: 255 columns).
  const bool half = bytes == 2, forward = problem.direction == Direction::kForward;
  const bool channels_last =
      is_channels_last(result_stride(problem)) || (of_weight && is_channels_last(problem.y_stride));
  const double scattered = of_weight ? (half ? 9 : 4.5) : 12;
  const double ragged = forward ? (half ? 7 : 2) : half ? 2.1 : 1.15;
  plan->memory_us = (bytes * (inputs + outputs * again) *
                         (channels_last ? scattered : (of_weight ? 1.2 : 1.1) * (on_vectors ? 1 : ragged)) +
                     2.0 * static_cast<double>(plan->workspace_bytes)) /
                    (device.copy_gb_per_s * 1e3);
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us) +
                      (of_weight                           ? 14
                       : is_exact(problem) || of_input     ? 5
                       : element_bytes(problem.dtype) == 4 ? 12
                                                           : 16);
}

}  // namespace

bool make_thin_depthwise_layout(const ConvTProblem& problem, const ThinDepthwiseInstance& instance, int32_t rows,
                                ThinDepthwiseLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  if (instance.dtype != problem.dtype || instance.direction != problem.direction) return false;
  if (problem.c_in != problem.groups || problem.c_out != problem.groups) return false;
  for (const Axis* axis : {&h, &w}) {
    if (axis->kernel != instance.kernel || axis->stride != instance.stride || axis->dilation != 1) return false;
  }
  const bool forward = problem.direction == Direction::kForward;
  // Paddings of the compiled kernels. In a gradient, a window starts `padding` columns before a lane's own; the
  // previous lane must own these columns.
  if (w.padding > instance.kernel - (forward ? 1 : instance.stride)) return false;
  layout->h = h;
  layout->w = w;
  layout->first_row = forward ? h.padding / h.stride : 0;
  layout->num_rows = forward ? (h.out - 1 + h.padding) / h.stride - layout->first_row + 1 : h.in;
  layout->rows = rows;
  layout->chunks = ceil_div(layout->num_rows, rows);
  const int32_t columns = depthwise_columns(problem.dtype, problem.direction);
  layout->strips = forward ? ceil_div(w.out, 32 * columns) : ceil_div(w.in, 32 * columns / instance.stride);
  layout->num_warps = problem.batch * problem.c_in * layout->chunks * layout->strips;
  layout->num_blocks = ceil_div(layout->num_warps, int64_t{kDepthwiseThreads / 32});
  constexpr int64_t kMostWarps = int64_t{1} << 30;  // the kernels use 32-bit indices
  if (problem.c_in > INT32_MAX || problem.batch > INT32_MAX || layout->num_warps > kMostWarps) return false;
  layout->channels = static_cast<int32_t>(problem.c_in);
  return true;
}

void add_thin_depthwise_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  for (int32_t index = 0; index < kNumThinDepthwiseInstances; ++index) {
    const ThinDepthwiseInstance& instance = kThinDepthwiseInstances[index];
    const int32_t rows = rows_of_warps(problem, instance);
    ThinDepthwiseLayout layout;
    if (rows == 0 || !make_thin_depthwise_layout(problem, instance, rows, &layout)) continue;
    Plan plan = begin_plan(instance.name, Precision::kIeee, ThinDepthwiseTile{});
    plan.threads = kDepthwiseThreads;
    plan.num_blocks = layout.num_blocks;
    plan.tile =
        ThinDepthwiseTile{index, rows, 32 * depthwise_columns(problem.dtype, problem.direction) / instance.stride};
    if (problem.direction == Direction::kGradWeight) {
      plan.workspace_bytes = slab_bytes(problem, num_slabs(problem, layout));
      if (plan.workspace_bytes > kMaxWorkspaceBytes) continue;
    }
    estimate(problem, instance, layout, &plan);
    estimate_in_proportion(proportion(device, false), &plan);
    plans->push_back(plan);
  }
}

}  // namespace convt
