#include "plan/plan.h"

#include <algorithm>

#include "plan/cost.h"
#include "plan/tensor_map.h"
#include "upsample_sm90a/instances.h"
#include "upsample_sm90a/layout.h"

namespace convt {
namespace {

bool on_multiples(const int64_t (&stride)[4], const int64_t (&sizes)[3], int64_t elements) {
  for (int axis = 0; axis < 3; ++axis) {
    if (sizes[axis] > 1 && (stride[axis] <= 0 || stride[axis] % elements != 0)) return false;
  }
  return true;
}

// The result's rows consist of vectors of 16 bytes.
bool serves(const ConvTProblem& problem) {
  if (problem.precision == Precision::kTf32x3 || problem.direction != Direction::kForward) return false;
  const int64_t vector = 16 / element_bytes(problem.dtype);
  return problem.w.out % vector == 0 && problem.y_stride[3] == 1 &&
         on_multiples(problem.y_stride, {problem.batch, problem.c_out, problem.h.out}, vector);
}

// Source rows are what a tensor map describes.
bool source_in_boxes(const ConvTProblem& problem) {
  const int64_t bytes = element_bytes(problem.dtype);
  return (problem.w.in == 1 || problem.x_stride[3] == 1) && has_map_stride(problem.batch, problem.x_stride[0], bytes) &&
         has_map_stride(problem.c_in, problem.x_stride[1], bytes) &&
         has_map_stride(problem.h.in, problem.x_stride[2], bytes);
}

bool weights_on_vectors(const ConvTProblem& problem) {
  return problem.w_stride[3] == 1 && on_multiples(problem.w_stride, {problem.c_in, problem.c_out, problem.h.kernel}, 4);
}

// Rows of a tile such that each of the CTAs with the same weights gets about as many, with few tiles.
int32_t best_rows(const ConvTProblem& problem, int64_t shares) {
  const int32_t rows = ceil_div(problem.h.out, problem.h.stride);
  const int64_t columns = problem.batch * ceil_div(ceil_div(problem.w.out, problem.w.stride), kUpsamplePositions);
  int32_t best = rows;
  int64_t least = ceil_div(columns, shares) * rows;
  constexpr int32_t kMostParts = 64;
  for (int32_t parts = 2; parts <= std::min(rows, kMostParts); ++parts) {
    const int32_t tile = ceil_div(rows, parts);
    const int64_t longest = ceil_div(columns * ceil_div(rows, tile), shares) * tile;
    if (longest < least) best = tile, least = longest;
  }
  return best;
}

// Times in microseconds: a launch with the weights, for each wave of CTAs, then the longer of memory and of a CTA's
// position rows one after the other, and a part of the shorter. Constants from measurements on an H200
// (docs/engines/upsample.md).
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const UpsampleLayout& layout, Plan* plan) {
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double input = bytes * input_elements(problem);
  const double output = bytes * output_elements(problem);
  plan->memory_us = (input + output) / (device.copy_gb_per_s * 1e3);
  const bool half = problem.dtype != DataType::kFloat32;
  const double waves = static_cast<double>(ceil_div(plan->num_blocks, int64_t{device.num_sms}));
  const double channels = static_cast<double>(problem.c_out) / (layout.channel_blocks.value * kUpsampleChannels);
  const double gather = plan->source_on_vectors ? 0.0 : half ? 0.6 : 0.15;
  const double row = (half ? 0.69 + 0.24 * channels : 0.95 + 0.36 * channels) + gather;
  plan->compute_us =
      waves * ceil_div(layout.num_tiles, layout.shares) * layout.tile_rows * row * 1.89 / device.clock_ghz;
  const double weights = waves * (plan->weight_on_vectors ? 2.5 : half ? 5.7 : 4.6), memory = 1.2 * plan->memory_us;
  plan->estimate_us = 5.7 + weights + std::max(plan->compute_us, memory) + 0.1 * std::min(plan->compute_us, memory);
}

}  // namespace

void add_upsample_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  if (!serves(problem)) return;
  const auto* instance = std::find_if(std::begin(kUpsampleInstances), std::end(kUpsampleInstances),
                                      [&problem](const UpsampleInstance& one) { return one.dtype == problem.dtype; });
  UpsampleLayout layout;
  UpsampleTile tile{static_cast<int32_t>(instance - kUpsampleInstances), 1, 1, kUpsampleLeastSlots};
  if (!make_upsample_layout(problem, tile, &layout)) return;
  tile.shares = std::max(1, device.num_sms / layout.num_operands);
  tile.tile_rows = best_rows(problem, tile.shares);
  // As many source rows as there is room for, and as a CTA needs.
  constexpr int32_t kMostSlots = 16;  // more gained nothing
  const int32_t room = (device.shared_per_block - layout.shared_bytes) / (layout.slot_bytes + 16);
  tile.slots =
      std::min({kUpsampleLeastSlots + room, std::max(kUpsampleLeastSlots, 2 * tile.tile_rows + 2), kMostSlots});
  if (!make_upsample_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block) return;
  Plan plan = begin_plan(instance->name, problem.precision, tile);
  plan.threads = kUpsampleThreads;
  plan.shared_bytes = layout.shared_bytes;
  plan.num_blocks = int64_t{layout.num_operands} * layout.shares;
  for (const bool boxes : {true, false}) {
    for (const bool vectors : {true, false}) {
      if ((boxes && !source_in_boxes(problem)) || (vectors && !weights_on_vectors(problem))) continue;
      plan.source_on_vectors = boxes;
      plan.weight_on_vectors = vectors;
      estimate(problem, device, layout, &plan);
      plans->push_back(plan);
    }
  }
}

}  // namespace convt
