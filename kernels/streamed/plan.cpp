// Candidates of streamed sources, with estimated times, and the tile layout that they share with gathered terms.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "plan/cost.h"
#include "problem/adjoint.h"
#include "streamed/instances.h"
#include "streamed/layout.h"

namespace convt {
namespace {

// Fitted to 640 measurements: microseconds, then issue slots and cycles of an SM.
constexpr double kLaunch = 10;
constexpr double kWeightCycles = 0.25;  // per channel, of a warp's term
constexpr double kReadCycles = 2.1;     // minimum per source read of a warp
constexpr double kLineCycles = 1.1;     // per cache line of a source read
constexpr double kSlots = 2;            // per instruction of a term
constexpr double kFillCycles = 0.74;    // per 32 weights copied to shared memory
constexpr double kTermCycles = 90;      // latency of a term in a single warp
constexpr double kVectorCycles = 500;   // additional latency per vector of channels, which is not prefetched
constexpr double kTileCycles = 5300;    // fixed cost of a CTA

// Whether four neighbouring channels of the source form one vector, apart from the alignment of the base address.
bool has_vectors(const ConvTProblem& problem) {
  const int64_t* stride = problem.x_stride;
  return stride[1] == 1 && problem.c_in / problem.groups % kStreamedVector == 0 && stride[0] % kStreamedVector == 0 &&
         stride[2] % kStreamedVector == 0 && stride[3] % kStreamedVector == 0;
}

int64_t resident_blocks(const DeviceInfo& device, const ThinStreamedInstance& instance,
                        const ThinStreamedLayout& layout) {
  const int32_t threads =
      min_streamed_blocks(instance.channels * instance.positions, instance.taps) * kMaxStreamedThreads;
  return std::min<int64_t>(
      {device.shared_per_sm / (layout.shared_bytes + kReservedPerBlock), threads / layout.threads, int64_t{32}});
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ThinStreamedInstance& instance,
              const ThinStreamedLayout& layout, Plan* plan) {
  const bool forward = problem.direction == Direction::kForward;
  const double channels = instance.channels, positions = instance.positions, warps = layout.threads / 32;
  // Average taps; phases may have fewer taps than the maximum.
  const double taps = static_cast<double>(problem.h.kernel) * problem.w.kernel / layout.by_phases.value;
  const double terms = layout.group_ci * taps;
  const double step = 4.0 * static_cast<double>(std::abs(layout.source_stride[3])) * layout.column_step;
  const double lines = std::min(32.0, 31 * step / 128 + 1);
  const double read =
      instance.taps > 0 ? (kLineCycles * lines + 4) / kStreamedVector : std::max(kReadCycles, kLineCycles * lines);
  const double shared = kWeightCycles * channels + read * positions + 1;
  const double issue = kSlots * (channels * positions + channels / 4 + 2 * positions + 3) / 4;
  const double resident = static_cast<double>(std::min<int64_t>(resident_blocks(device, instance, layout),
                                                                ceil_div(plan->num_blocks, int64_t{device.num_sms})));
  const double blocks = static_cast<double>(plan->num_blocks);
  const double waves = std::ceil(blocks / device.num_sms / resident);
  const double work = blocks * warps * terms * (std::max(shared, issue) + kFillCycles * channels / 32) / device.num_sms;
  const double vectors = instance.taps > 0 ? layout.group_ci / kStreamedVector : 0;
  const double wait = waves * (kTileCycles + vectors * kVectorCycles + terms * (kTermCycles + channels * positions));
  plan->compute_us = (std::max(work, wait) + 0.3 * std::min(work, wait)) / (device.clock_ghz * 1e3);
  // In the forward pass, results of one phase are not contiguous.
  const double scatter = forward ? problem.w.stride : 1;
  plan->memory_us =
      1.3 * 4 * (input_elements(problem) + scatter * output_elements(problem)) * 1e-3 / device.copy_gb_per_s;
  plan->estimate_us =
      kLaunch + std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us);
}

void add_plan(const ConvTProblem& problem, const DeviceInfo& device, const ThinStreamedTile& tile, BestPlans* plans) {
  const ThinStreamedInstance& instance = kThinStreamedInstances[tile.instance];
  ThinStreamedLayout layout;
  if (!make_thin_streamed_layout(problem, tile, &layout)) return;
  if (layout.shared_bytes > device.shared_per_block || resident_blocks(device, instance, layout) < 1) return;
  Plan plan = begin_plan(instance.name, Precision::kIeee, tile);
  set_launch(layout, &plan);
  plan.source_on_vectors = instance.taps > 0;
  estimate(problem, device, instance, layout, &plan);
  plans->consider(plan);
}

// Elements between a tensor's first and last element.
int64_t extent(const int64_t (&stride)[4], int64_t batch, int64_t channels, int64_t rows, int64_t columns) {
  return (batch - 1) * std::abs(stride[0]) + (channels - 1) * std::abs(stride[1]) + (rows - 1) * std::abs(stride[2]) +
         (columns - 1) * std::abs(stride[3]);
}

}  // namespace

bool make_thin_tiled_layout(const ConvTProblem& asked, int32_t block_positions, int32_t block_channels,
                            ThinTiledLayout* layout) {
  if (!make_terms_layout(asked, layout)) return false;
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMost = int64_t{1} << 30;
  // Kernels use 32-bit element offsets, also outside the image's borders.
  const double border = (static_cast<double>(h.kernel) * std::abs(h.dilation) + std::abs(h.padding)) *
                        std::abs(static_cast<double>(problem.x_stride[2]));
  if (border > kMost || extent(problem.x_stride, problem.batch, problem.c_in, h.in, w.in) > kMost ||
      extent(problem.y_stride, problem.batch, problem.c_out, h.out, w.out) > kMost) {
    return false;
  }
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->result_rows = h.out;
  layout->result_columns = w.out;
  const int32_t rows = ceil_div(h.out, h.stride), columns = ceil_div(w.out, w.stride);
  const int64_t positions = problem.batch * rows * columns;
  layout->num_positions = static_cast<int32_t>(positions);
  layout->by_columns = FastDivmod::of(columns);
  layout->by_rows = FastDivmod::of(rows);
  layout->block_positions = block_positions;
  layout->block_channels = block_channels;
  const int64_t channel_tiles = ceil_div(layout->group_co, block_channels);
  const int64_t position_tiles = ceil_div(positions, int64_t{block_positions});
  const int64_t phases = int64_t{h.stride} * w.stride;
  layout->by_channel_tiles = FastDivmod::of(static_cast<int32_t>(channel_tiles));
  layout->by_phases = FastDivmod::of(static_cast<int32_t>(phases));
  layout->by_position_tiles = FastDivmod::of(static_cast<int32_t>(position_tiles));
  layout->num_blocks = channel_tiles * position_tiles * phases * problem.groups;
  return layout->num_blocks <= kMost;
}

bool make_thin_streamed_layout(const ConvTProblem& asked, const ThinStreamedTile& plan, ThinStreamedLayout* layout) {
  *layout = ThinStreamedLayout{};
  const ThinStreamedInstance& instance = kThinStreamedInstances[plan.instance];
  layout->warps_channels = plan.warps_channels;
  layout->warps_positions = plan.warps_positions;
  layout->threads = 32 * plan.warps_channels * plan.warps_positions;
  if (asked.dtype != DataType::kFloat32 || layout->threads > kMaxStreamedThreads) return false;
  const int32_t block_channels = plan.warps_channels * instance.channels;
  if (!make_thin_tiled_layout(asked, 32 * plan.warps_positions * instance.positions, block_channels, layout)) {
    return false;
  }
  const ConvTProblem problem = asked.direction == Direction::kForward ? asked : adjoint_problem(asked);
  const int32_t taps_h = max_taps(problem.h), taps_w = max_taps(problem.w);
  if (std::max(taps_h, taps_w) > kMostStreamedTaps) return false;
  if (instance.taps > 0 && (!has_vectors(problem) || taps_h * taps_w > instance.taps)) return false;
  // Odd number of quads: consecutive terms start in different banks.
  const int32_t quads = block_channels / 4;
  layout->weight_pitch = 4 * (quads + 1 - quads % 2);
  constexpr int64_t kTermBytes = 8, kMostBytes = 1 << 20;
  const int64_t list = (layout->terms + kStreamedPadding + 3) / 4 * 4 * kTermBytes;
  const int64_t bytes = list + int64_t{4} * layout->terms * layout->weight_pitch;
  if (bytes > kMostBytes) return false;
  layout->weights_begin = static_cast<int32_t>(list);
  layout->shared_bytes = static_cast<int32_t>(bytes);
  return true;
}

void add_thin_streamed_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.dtype != DataType::kFloat32 || !is_exact(problem) || problem.direction == Direction::kGradWeight) return;
  const bool forward = problem.direction == Direction::kForward;
  const auto channels = static_cast<int32_t>((forward ? problem.c_out : problem.c_in) / problem.groups);
  constexpr int32_t kMostChannels = 256;  // per group; larger layers are not thin
  if (channels == 1 && problem.groups > 1) return;  // depthwise layers have separate kernels
  if (channels > kMostChannels) return;
  for (int32_t index = 0; index < kNumThinStreamedInstances; ++index) {
    if (kThinStreamedInstances[index].direction != problem.direction) continue;
    BestPlans best(3);
    const int32_t units = ceil_div(channels, kThinStreamedInstances[index].channels);
    for (const int32_t warps : {4, 8}) {
      for (int32_t warps_c = 1; warps_c <= std::min(units, warps); ++warps_c) {
        if (warps % warps_c == 0) add_plan(problem, device, {index, warps_c, warps / warps_c}, &best);
      }
    }
    best.append_to(plans);
  }
}

}  // namespace convt
