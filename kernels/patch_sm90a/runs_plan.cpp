#include <algorithm>

#include "patch_sm90a/instances.h"
#include "patch_sm90a/layout.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/shared_memory.h"
#include "plan/tensor_map.h"

namespace convt {
namespace {

constexpr int32_t kLeastSlots = 2, kMostSlots = 8;
constexpr int32_t kMostTiles = 4;  // per SM
constexpr int32_t kMostBox = 256;  // elements of a tensor map's box along a dimension

int32_t log2_of(int64_t power) {
  int32_t log2 = 0;
  while (int64_t{1} << log2 < power) ++log2;
  return log2;
}

// Whether a tile's rows are part of one image, or several whole images.
bool has_box(const ConvTProblem& problem, int32_t rows) {
  return problem.batch == 1 || problem.h.in % rows == 0 || rows % problem.h.in == 0;
}

// Whether rows of grad_output are contiguous, its channels and the weights' rows are aligned for tensor maps and
// copies, and positions of a result channel are contiguous.
bool has_runs(const ConvTProblem& problem, int64_t element) {
  const int64_t* y = problem.y_stride;
  return has_runs_of_positions(problem) && y[3] == 1 && y[2] == problem.w.out &&
         has_map_stride(problem.c_out, y[1], element) && has_map_stride(problem.batch, y[0], element) &&
         has_rows_of_taps(problem) && has_map_stride(problem.c_in, problem.w_stride[0], element);
}

// Cost of each phase of the kernel in microseconds. Their sum is its time. Channels are counted in units of 64. Fitted
// to 270 measurements of 26 layers on an H200.
struct Costs {
  double launch, round;
  double products, stage;  // per stage
  double traffic;  // per 10^6 bytes through L2
  double sums, large_cluster;  // exchange between the CTAs of a cluster; extra cost of eight CTAs
  double stores;
  double copies;  // per copy beyond four in a stage
  double memory;  // per microsecond at copy bandwidth
  double few_slots;  // per stage, if there are only two slots
};
constexpr Costs kFloat32Costs = {7.6, 1.6, 0.108, 0.09, 0.0137, 1.53, 0.7, 0.27, 0.019, 0.46, 0.33};
constexpr Costs kHalfCosts = {6.7, 2.2, 0.082, 0.16, 0.0365, 1.81, 0.6, 0.46, 0.019, 0.39, 0.28};

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const PatchRunsLayout& layout, int32_t ctas,
              Plan* plan) {
  const PatchRunsTile& tile = tile_of<PatchRunsTile>(*plan);
  const Costs& costs = problem.dtype == DataType::kFloat32 ? kFloat32Costs : kHalfCosts;
  const double element = static_cast<double>(element_bytes(problem.dtype));
  const double copy = device.copy_gb_per_s * 1e3;
  const double weights = 128.0 * problem.c_in * layout.num_stages;
  plan->memory_us = (element * (input_elements(problem) + output_elements(problem)) + weights) / copy;
  const auto rounds = static_cast<double>(ceil_div(plan->num_blocks, int64_t{ctas} * device.num_sms));
  const double splits = tile.splits, channels = tile.channels / 64.0;
  const double stages = rounds * ctas * ceil_div(layout.num_stages, tile.splits);  // per SM
  const double positions = tile.rows * problem.w.in;
  const double traffic = static_cast<double>(plan->num_blocks) * ceil_div(layout.num_stages, tile.splits) * 128e-6 *
                         (tile.channels + positions);
  const int32_t images = has_box(problem, tile.rows) ? std::max(1, tile.rows / problem.h.in) : 2;
  const double copies = layout.boxes ? 0 : std::max(0, layout.stage_channels * images - 4);
  const double of_stage = costs.products * channels + costs.stage + costs.copies * copies +
                          (tile.slots == kLeastSlots ? costs.few_slots : 0);
  const double sums = tile.splits > 1 ? costs.sums * ctas * channels * (splits - 1) / splits : 0;
  plan->compute_us = costs.round * (rounds - 1) + stages * of_stage + costs.traffic * traffic + sums +
                     (tile.splits == kRunsMostSplits ? costs.large_cluster : 0) +
                     costs.stores * rounds * ctas * channels / splits;
  plan->compute_us *= 1.89 / device.clock_ghz;
  plan->estimate_us = costs.launch + plan->compute_us + costs.memory * plan->memory_us;
}

// Chooses the number of slots and completes the plan. Returns false if it does not fit, or if more CTAs gain nothing.
bool lay_out(const ConvTProblem& problem, const DeviceInfo& device, int32_t ctas, Plan* plan) {
  PatchRunsTile& tile = tile_of<PatchRunsTile>(*plan);
  const int32_t room = shared_room(device, ctas);
  PatchRunsLayout layout;
  if (!make_patch_runs_layout(problem, tile, &layout) || layout.shared_bytes > room) return false;
  // Clusters are placed within regions of the GPU whose number of SMs is not a multiple of 4.
  const int64_t sms = tile.splits > 2 ? device.num_sms * 7 / 8 : device.num_sms;
  if (layout.num_blocks > sms * (tile.splits > 1 ? ctas : kMostTiles)) return false;
  if (ctas > 1 && layout.num_blocks <= device.num_sms) return false;
  const int32_t slot_bytes = layout.weights_bytes + layout.source_bytes + 16;
  const int32_t most = kLeastSlots + (room - layout.shared_bytes) / slot_bytes;
  tile.slots = std::clamp(ceil_div(layout.num_stages, tile.splits), kLeastSlots, std::min(most, kMostSlots));
  if (!make_patch_runs_layout(problem, tile, &layout) || layout.shared_bytes > room) return false;
  set_launch(layout, plan);
  plan->source_on_vectors = plan->weight_on_vectors = true;
  estimate(problem, device, layout, ctas, plan);
  return true;
}

}  // namespace

bool make_patch_runs_layout(const ConvTProblem& problem, const PatchRunsTile& plan, PatchRunsLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  const int64_t element = element_bytes(problem.dtype);
  const int64_t of_stage = 128 / element, taps = int64_t{h.kernel} * w.kernel;  // elements of K
  const int64_t positions = problem.batch * h.in * w.in;
  constexpr int64_t kLimit = int64_t{1} << 30;
  if (problem.groups != 1 || w.kernel % 2 != 0 || of_stage % taps != 0 || problem.c_out * taps % of_stage != 0 ||
      !has_runs(problem, element))
    return false;
  if (h.kernel * w.out * element % 16 != 0 || positions > kLimit || problem.c_in > kLimit ||
      problem.c_out * taps > kLimit)
    return false;
  if (plan.rows < 1 || plan.rows * int64_t{w.in} > kRunsPositions || plan.slots < kLeastSlots) return false;
  *layout = PatchRunsLayout{};
  layout->positions = static_cast<int32_t>(positions);
  layout->by_image = FastDivmod::of(h.in * w.in);
  layout->by_rows = FastDivmod::of(h.in);
  layout->by_width = FastDivmod::of(w.in);
  layout->total_rows = static_cast<int32_t>(problem.batch * h.in);
  layout->rows = plan.rows;
  layout->channel_tiles = FastDivmod::of(static_cast<int32_t>(ceil_div(problem.c_in, int64_t{plan.channels})));
  layout->splits = plan.splits;
  layout->splits_log2 = log2_of(plan.splits);
  layout->num_stages = static_cast<int32_t>(problem.c_out * taps / of_stage);
  layout->stage_channels = static_cast<int32_t>(of_stage / taps);
  layout->stage_elements = static_cast<int32_t>(of_stage);
  if (layout->num_stages < plan.splits) return false;
  layout->kernel_h = h.kernel;
  layout->patch_log2 = log2_of(taps * element);
  layout->columns_log2 = log2_of(w.kernel * element);
  layout->line_bytes = static_cast<int32_t>(w.out * element);
  layout->row_bytes = h.kernel * layout->line_bytes;
  layout->boxes = layout->line_bytes % 16 == 0 && w.out <= kMostBox &&
                  std::min(plan.rows, h.in) * h.kernel <= kMostBox && has_box(problem, plan.rows);
  // Without boxes, channels with less than 16 bytes of taps are read in parallel. The padding avoids bank conflicts.
  layout->channel_pitch = plan.rows * layout->row_bytes;
  if (!layout->boxes) layout->channel_pitch = round_up(layout->channel_pitch, 128) + (taps * element < 16 ? 32 : 0);
  layout->slots = plan.slots;
  layout->weights_bytes = 128 * plan.channels;
  layout->source_bytes = round_up(layout->stage_channels * layout->channel_pitch, 128);
  const int32_t pipeline = plan.slots * (layout->weights_bytes + layout->source_bytes);
  const int32_t staged = plan.channels / plan.splits * kRunsStagedPitch * 4;
  layout->sums_bytes = 4 * kRunsPositions * plan.channels / plan.splits * (plan.splits - 1);
  layout->threads = runs_threads(plan.channels);
  SharedMemory smem;
  smem.take(std::max(pipeline, staged));
  layout->sums_begin = smem.take(layout->sums_bytes, 16);
  layout->barriers_begin = smem.take(16 * plan.slots + 8);
  layout->shared_bytes = smem.bytes();
  layout->num_blocks =
      ceil_div(int64_t{layout->total_rows}, int64_t{plan.rows}) * layout->channel_tiles.value * plan.splits;
  return layout->num_blocks < kLimit;
}

void add_patch_runs_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (!is_nonoverlapping(problem) || problem.direction != Direction::kGradInput || problem.w.in > kRunsPositions)
    return;
  // Tiles that end within an image are slower than slightly smaller tiles that do not.
  int32_t rows = static_cast<int32_t>(std::min<int64_t>(kRunsPositions / problem.w.in, problem.batch * problem.h.in));
  int32_t box_rows = rows;
  while (!has_box(problem, box_rows)) --box_rows;
  if (box_rows * problem.w.in >= kRunsPositions / 2) rows = box_rows;
  for (int32_t index = 0; index < kNumPatchRunsInstances; ++index) {
    const PatchRunsInstance& instance = kPatchRunsInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    for (int32_t ctas = 1; ctas <= (instance.channels == kRunsPairedChannels ? 2 : 1); ++ctas) {
      for (int32_t splits = 1; splits <= kRunsMostSplits; splits *= 2) {
        Plan plan = begin_plan(instance.name, problem.precision, PatchRunsTile{});
        plan.tile = PatchRunsTile{index, instance.channels, rows, splits, kLeastSlots};
        if (lay_out(problem, device, ctas, &plan)) plans->push_back(plan);
      }
    }
  }
}

}  // namespace convt
