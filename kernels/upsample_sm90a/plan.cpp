// The layout of the upsample engine, its candidates and their estimated times.
#include "plan/plan.h"

#include <algorithm>

#include "plan/cost.h"
#include "plan/tensor_map.h"
#include "upsample_sm90a/instances.h"
#include "upsample_sm90a/layout.h"

namespace convt {

bool make_upsample_layout(const ConvTProblem& problem, const UpsampleTile& plan, UpsampleLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  constexpr int64_t kLimit = int64_t{1} << 20;
  if (problem.groups != 1 || problem.batch > kLimit || problem.c_in > kUpsampleChannels || problem.c_out > 256) {
    return false;
  }
  if (w.dilation != 1 || w.stride % 8 != 0 || w.kernel != 2 * w.stride || w.padding % 4 != 0) return false;
  if ((h.kernel > 1 && h.dilation != 1) || h.kernel > 2 * h.stride || h.stride > 256 || w.stride > 256) return false;
  if (plan.tile_rows < 1 || plan.slots < kUpsampleLeastSlots) return false;
  *layout = UpsampleLayout{};
  layout->batch = static_cast<int32_t>(problem.batch);
  layout->c_in = static_cast<int32_t>(problem.c_in);
  layout->c_out = static_cast<int32_t>(problem.c_out);
  layout->h = h;
  layout->w = w;
  layout->octets = Divisor::of(w.stride / 8);
  layout->channel_blocks = Divisor::of(ceil_div(layout->c_out, kUpsampleChannels));
  layout->stride_h = Divisor::of(h.stride);
  layout->num_operands = h.stride * layout->octets.value * layout->channel_blocks.value;

  layout->rows = ceil_div(h.out, h.stride);
  layout->tile_rows = std::min(plan.tile_rows, layout->rows);
  const int64_t row_tiles = ceil_div(layout->rows, layout->tile_rows);
  const int64_t column_tiles = ceil_div(ceil_div(w.out, w.stride), kUpsamplePositions);
  const int64_t tiles = problem.batch * row_tiles * column_tiles;
  if (tiles > 1 << 24) return false;
  layout->row_tiles = Divisor::of(static_cast<int32_t>(row_tiles));
  layout->column_tiles = Divisor::of(static_cast<int32_t>(column_tiles));
  layout->num_tiles = static_cast<int32_t>(tiles);
  layout->shares = std::min(plan.shares, layout->num_tiles);

  layout->pitch = kUpsamplePitch[element / 4];
  layout->slots = Divisor::of(plan.slots);
  layout->slot_bytes = kUpsampleChannels * layout->pitch * element;
  layout->weights_begin = plan.slots * layout->slot_bytes;
  // Two quads, the second 16 bytes further, of two tap rows.
  layout->bias_begin = layout->weights_begin + 4 * kUpsampleSteps[element / 4] * kUpsampleStepBytes + 16;
  layout->barriers_begin = layout->bias_begin + 4 * kUpsampleChannels;
  layout->shared_bytes = layout->barriers_begin + 16 * plan.slots;
  return true;
}

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
  constexpr int32_t kMostPieces = 64;
  for (int32_t pieces = 2; pieces <= std::min(rows, kMostPieces); ++pieces) {
    const int32_t tile = ceil_div(rows, pieces);
    const int64_t longest = ceil_div(columns * ceil_div(rows, tile), shares) * tile;
    if (longest < least) best = tile, least = longest;
  }
  return best;
}

// Times in microseconds: a launch with the weights, for each wave of CTAs, then the longer of memory and of a CTA's
// position rows one after the other, and a part of the shorter. Constants from measurements on an H200.
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

void add_upsample_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
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
