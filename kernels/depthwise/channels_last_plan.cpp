// Candidates for depthwise layers in channels_last, with estimated times.
#include <algorithm>

#include "depthwise/channels_last_layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

PositionRange positions_of(const Axis& axis, Direction direction) {
  if (direction != Direction::kForward) return PositionRange{0, axis.in};
  const int32_t first = axis.padding / axis.stride;
  return PositionRange{first, (axis.out - 1 + axis.padding) / axis.stride - first + 1};
}

// Rows per CTA, which affect the time by up to a fifth. The forward pass waits for its stores: it uses few rows, in
// whole groups, so that no SM idles at the end. The gradient of the input also reads rows before its first, so it
// minimizes the total rows that an SM processes in whole waves.
int32_t rows_of_blocks(const ConvTProblem& problem, const DeviceInfo& device, const ThinChannelsLastInstance& instance,
                       int32_t vector) {
  constexpr int32_t kForwardRows = 8, kMostRows = 32, kFewestRows = 2, kBegin = 3;  // kBegin: cost of a CTA
  const bool forward = problem.direction == Direction::kForward;
  const int64_t resident = int64_t{device.num_sms} * kChannelsLastBlocksPerSm;
  const int32_t step =
      forward ? channels_last_forward_group(instance.kernel, instance.stride, instance.rows_ahead) : kFewestRows;
  int32_t best = 0;
  int64_t least = 0;
  for (int32_t rows = (forward ? kForwardRows : kMostRows) / step * step; rows >= kFewestRows;
       rows = rows > step ? rows - step : rows / 2) {
    ThinChannelsLastLayout layout;
    if (!make_thin_channels_last_layout(problem, instance, rows, vector, &layout)) break;
    if (forward && layout.num_blocks >= resident) return rows;
    const int64_t walked = ceil_div(layout.num_blocks, resident) * (std::min(rows, layout.positions_h.count) + kBegin);
    if (best == 0 || walked < least) best = rows, least = walked;
  }
  return best;
}

// Rows per CTA in the gradient of the weight. They depend only on the problem: whole groups of rows, as many as still
// fill every SM of the reference GPU with resident CTAs. More than kMostRows are slower.
int32_t rows_of_grad_weight(const ConvTProblem& problem, const ThinChannelsLastInstance& instance, int32_t vector) {
  constexpr int32_t kMostRows = 18;
  const int64_t resident = int64_t{h200().num_sms} * kChannelsLastBlocksPerSm;
  const int32_t group = channels_last_group(instance.kernel, instance.stride, instance.rows_ahead);
  const int32_t before = ceil_div(instance.kernel, instance.stride) - 1;  // extra rows of a CTA's first group
  ThinChannelsLastLayout layout;
  int32_t rows = (kMostRows + before) / group * group - before;
  while (rows > group && make_thin_channels_last_layout(problem, instance, rows, vector, &layout) &&
         layout.num_blocks < resident) {
    rows -= group;
  }
  return rows;
}

int64_t num_slabs(const ConvTProblem& problem, const ThinChannelsLastLayout& layout) {
  return problem.batch * layout.chunks * layout.column_blocks;
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ThinChannelsLastInstance& instance,
              const ThinChannelsLastLayout& layout, Plan* plan) {
  const double vector = layout.vector, positions = instance.positions, rows = layout.rows;
  const double kept = instance.kernel - instance.stride, stride = instance.stride;
  const bool forward = problem.direction == Direction::kForward;
  const bool of_weight = problem.direction == Direction::kGradWeight;
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  // Warp instructions per row of positions: products, loads with their addresses, and stores or loads of pixels.
  const double taps = instance.kernel * instance.kernel * positions;
  const double loads = forward ? positions + kept / stride : stride * ((positions - 1) * stride + instance.kernel);
  const double stores = forward ? positions * stride * stride : positions;
  const double unpacked = bytes == 2 ? 1.5 : 1.1;
  const double row_slots = taps * vector * unpacked + 4 * loads + 5 * stores + 30;
  const double warps = static_cast<double>(layout.num_blocks) * kChannelsLastThreads / 32;
  plan->compute_us = warps * (rows + kept / stride) * row_slots / 4 / 0.6 / device.num_sms / (device.clock_ghz * 1e3);
  const double inputs = input_elements(problem);
  const double outputs = output_elements(problem);
  const double again = 1 + kept / stride / rows;
  // Element-wise access needs more instructions in flight for fewer bytes.
  const double alone = layout.vector == 1 ? 1.7 : 1;
  // Border columns slow down the gradient of the weight. It only reads, which is faster than a copy of the same size.
  const double copies = of_weight ? 0.9 * (1 + 8.0 / problem.w.in) : 1.08;
  plan->memory_us = (copies * alone * bytes * (inputs * (forward ? again : 1) + outputs * (forward ? 1 : again)) +
                     2.0 * static_cast<double>(plan->workspace_bytes)) /
                    (device.copy_gb_per_s * 1e3);
  // Minimum time of a call: cold instructions (most for 4 x 4 taps), and a second launch for slabs.
  const double least_us = of_weight ? 11 : instance.kernel == 4 ? 8 : 6.3;
  plan->estimate_us = std::max(plan->compute_us, plan->memory_us) +
                      (of_weight ? 0.65 : 0.16) * std::min(plan->compute_us, plan->memory_us) + least_us;
}

}  // namespace

int32_t channels_last_vector(const ConvTProblem& problem, const ThinChannelsLastInstance& instance) {
  return problem.c_in % instance.vector == 0 ? instance.vector : 1;
}

bool make_thin_channels_last_layout(const ConvTProblem& problem, const ThinChannelsLastInstance& instance, int32_t rows,
                                    int32_t vector, ThinChannelsLastLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  if (instance.dtype != problem.dtype || instance.direction != problem.direction) return false;
  if (problem.c_in != problem.groups || problem.c_out != problem.groups) return false;
  const bool of_weight = problem.direction == Direction::kGradWeight;
  if (!is_channels_last(result_stride(problem)) || (of_weight && !is_channels_last(problem.y_stride))) return false;
  for (const Axis* axis : {&h, &w}) {
    if (axis->kernel != instance.kernel || axis->stride != instance.stride || axis->dilation != 1) return false;
  }
  if (vector != 1 && (vector != instance.vector || problem.c_in % vector != 0)) return false;
  if (problem.c_in > INT32_MAX || problem.batch > INT32_MAX) return false;
  layout->h = h;
  layout->w = w;
  layout->positions_h = positions_of(h, problem.direction);
  layout->positions_w = positions_of(w, problem.direction);
  layout->channels = static_cast<int32_t>(problem.c_in);
  layout->vector = vector;
  // A warp processes up to 32 neighbouring vectors, in blocks of about equal size.
  const int32_t vectors = layout->channels / vector;
  layout->channel_blocks = ceil_div(vectors, 32);
  layout->lanes = ceil_div(vectors, layout->channel_blocks);
  layout->columns = kChannelsLastThreads / layout->lanes;
  layout->shared_bytes = (of_weight ? layout->columns : 1) * instance.kernel * instance.kernel * layout->lanes *
                         vector * static_cast<int32_t>(sizeof(float));
  layout->column_blocks = ceil_div(layout->positions_w.count, layout->columns * instance.positions);
  layout->rows = rows;
  layout->chunks = ceil_div(layout->positions_h.count, rows);
  layout->num_blocks = problem.batch * layout->chunks * layout->channel_blocks * layout->column_blocks;
  return layout->num_blocks <= INT32_MAX;
}

void add_thin_channels_last_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  const bool of_weight = problem.direction == Direction::kGradWeight;
  for (int32_t index = 0; index < kNumThinChannelsLastInstances; ++index) {
    const ThinChannelsLastInstance& instance = kThinChannelsLastInstances[index];
    if (instance.dtype != problem.dtype || instance.direction != problem.direction) continue;
    const int32_t vector = channels_last_vector(problem, instance);
    const int32_t rows =
        of_weight ? rows_of_grad_weight(problem, instance, vector) : rows_of_blocks(problem, device, instance, vector);
    ThinChannelsLastLayout layout, single;
    if (rows == 0 || !make_thin_channels_last_layout(problem, instance, rows, vector, &layout)) continue;
    Plan plan = begin_plan(instance.name, Precision::kIeee, ThinChannelsLastTile{});
    plan.threads = kChannelsLastThreads;
    plan.shared_bytes = layout.shared_bytes;
    plan.num_blocks = layout.num_blocks;
    plan.tile = ThinChannelsLastTile{index, rows, vector, layout.lanes * vector, layout.columns * instance.positions};
    if (of_weight) {
      // If operands are not vector-aligned, launch/ uses one channel per thread.
      if (!make_thin_channels_last_layout(problem, instance, rows, 1, &single)) continue;
      plan.workspace_bytes = slab_bytes(problem, std::max(num_slabs(problem, layout), num_slabs(problem, single)));
      if (plan.workspace_bytes > kMaxWorkspaceBytes) continue;
    }
    estimate(problem, of_weight ? h200() : device, instance, layout, &plan);
    if (of_weight) estimate_in_proportion(proportion(device, false), &plan);
    plans->push_back(plan);
  }
}

}  // namespace convt
