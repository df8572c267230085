#include "plan/plan.h"

#include <algorithm>

#include "plan/cost.h"
#include "plan/tensor_map.h"
#include "scatter_sm90a/instances.h"
#include "scatter_sm90a/layout.h"

namespace convt {
namespace {

// Source rows are what a tensor map describes, and columns of the result are neighbours; in channels_last its pixels,
// and channels.
bool serves(const ConvTProblem& problem, bool channels_last) {
  if (problem.direction != Direction::kForward) return false;
  const int64_t bytes = element_bytes(problem.dtype);
  const int64_t source[4] = {problem.batch, problem.c_in, problem.h.in, problem.w.in};
  const int64_t result[4] = {problem.batch, problem.c_out, problem.h.out, problem.w.out};
  const int innermost = channels_last ? 1 : 3;
  if (source[innermost] > 1 && problem.x_stride[innermost] != 1) return false;
  if (result[innermost] > 1 && problem.y_stride[innermost] != 1) return false;
  for (int axis = 0; axis < 4; ++axis) {
    if (axis != innermost && !has_map_stride(source[axis], problem.x_stride[axis], bytes)) return false;
  }
  return true;
}

// Times in microseconds: a launch with the first weights, more weights, then the longer of memory and of a CTA's source
// rows one after the other, and a part of the shorter. Constants from measurements of twelve layers on an H200
// (docs/engines/scatter.md).
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ScatterLayout& layout, Plan* plan) {
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double input = bytes * input_elements(problem);
  const double output = bytes * output_elements(problem);
  plan->memory_us = (input + output) / (device.copy_gb_per_s * 1e3);
  const bool half = problem.dtype != DataType::kFloat32;
  const double tiles = static_cast<double>(ceil_div(int64_t{layout.num_tiles}, plan->num_blocks));
  const ScatterInstance& instance = kScatterInstances[tile_of<ScatterTile>(*plan).instance];
  // In channels_last planes of a channel, as a unit is a result of one.
  const int32_t planes = instance.channels_last ? problem.h.stride : layout.num_planes;
  const double stores = ceil_div(layout.num_units, 128) * ceil_div(planes, 3) * ceil_div(layout.terms, 3);
  const double alone = plan->num_blocks > device.num_sms ? 1 : 0.75;
  const bool split = instance.precision == Precision::kTf32x3;
  const double step = half ? 0.07 : split ? 0.08 + 0.00125 * instance.slots * instance.columns : 0.04;
  const double row = alone * std::max({half ? 0.75 : 0.6, step * layout.steps, 0.2 * stores});
  plan->compute_us = tiles * (layout.tile_rows + layout.slots - 1) * row * 1.89 / device.clock_ghz;
  const double weights = 1.7 * (ceil_div(layout.weight_units, layout.weight_threads) - 1);
  const double memory = (instance.channels_last ? 1.25 : 1.6) * plan->memory_us;
  plan->estimate_us = 6.4 + weights + std::max(plan->compute_us, memory) + 0.35 * std::min(plan->compute_us, memory);
}

// Steps of a stage: all channels, or the most that a box takes, in `more` parts more than that needs.
int32_t chunk_of(const ConvTProblem& problem, bool channels_last, int32_t strips, int32_t more) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  if (channels_last) return kScatterRowBytes / 32;
  const int32_t most = 256 / (32 / element);
  const int64_t steps = ceil_div(problem.c_in, int64_t{32 / element});
  const int64_t parts = more + ceil_div(steps, int64_t{std::min(most, 16 / strips)});
  return static_cast<int32_t>(ceil_div(steps, parts * kScatterBatch)) * kScatterBatch;
}

// As many stages as are worth their room. More than this on their way gained nothing.
int32_t stages_of(const ScatterLayout& layout, bool channels_last, int32_t resident, int32_t room) {
  constexpr int32_t kManyBytes = 12 * 1024;
  const int32_t most = channels_last ? 6 / resident : layout.stage_bytes < kManyBytes ? 3 : 2;
  return std::min(most, 2 + (room - layout.shared_bytes) / (layout.stage_bytes + 16));
}

void add_tiles(const ConvTProblem& problem, const DeviceInfo& device, int32_t index, int32_t strips, int32_t resident,
               std::vector<Plan>* plans) {
  const ScatterInstance& instance = kScatterInstances[index];
  const int32_t room = std::min(device.shared_per_block, device.shared_per_sm / resident - 1024);
  Plan plan = begin_plan(instance.name, problem.precision, ScatterTile{});
  ScatterLayout layout;
  bool fits = false;
  for (int32_t more = 0; more < 3 && !fits; ++more) {
    plan.tile = ScatterTile{index, strips, 1 << 29, chunk_of(problem, instance.channels_last, strips, more), 2};
    if (!make_scatter_layout(problem, tile_of<ScatterTile>(plan), &layout)) return;
    fits = layout.shared_bytes <= room;
  }
  if (!fits) return;
  tile_of<ScatterTile>(plan).stages = stages_of(layout, instance.channels_last, resident, room);
  // As many tiles as CTAs, or twice as many.
  const int64_t blocks = int64_t{resident} * device.num_sms, columns = layout.num_tiles;
  const int32_t rows = layout.end_row - layout.first_row;
  for (int32_t tiles = 1; tiles <= 2; ++tiles) {
    const int64_t shares = std::max<int64_t>(1, tiles * blocks / columns);
    tile_of<ScatterTile>(plan).tile_rows = static_cast<int32_t>(ceil_div(int64_t{rows}, shares));
    if (!make_scatter_layout(problem, tile_of<ScatterTile>(plan), &layout)) continue;
    plan.source_on_vectors = true;
    plan.threads = scatter_threads(is_split(instance));
    plan.shared_bytes = layout.shared_bytes;
    plan.num_blocks = std::min<int64_t>(layout.num_tiles, blocks);
    estimate(problem, device, layout, &plan);
    plans->push_back(plan);
  }
}

}  // namespace

void add_scatter_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  for (const bool channels_last : {false, true}) {
    if (!serves(problem, channels_last)) continue;
    const size_t before = plans->size();
    // Of the smallest instance: a larger one computes more that nobody asks for.
    for (int32_t index = 0; index < kNumScatterInstances && plans->size() == before; ++index) {
      const ScatterInstance& instance = kScatterInstances[index];
      if (instance.dtype != problem.dtype || instance.precision != problem.precision ||
          instance.channels_last != channels_last) {
        continue;
      }
      for (int32_t strips = 1; strips <= 4; strips *= 2) {
        if (strips > 1 && (problem.w.in > kScatterPositions / strips || problem.batch < strips)) continue;
        for (int32_t resident = 1; resident <= 2; ++resident) {
          add_tiles(problem, device, index, strips, resident, plans);
        }
      }
    }
  }
}

}  // namespace convt
