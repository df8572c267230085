// Candidates of gathered terms, with estimated times.
#include "plan/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gather/layout.h"
#include "plan/cost.h"

namespace convt {
namespace {

// Fitted to measurements: microseconds, then issue slots and cycles.
constexpr double kLaunch = 6.5;
constexpr double kBorder = 0.6;        // per border term and position of a thread
constexpr double kSourceRead = 0.5;    // per term and position of a thread, without lanes along channels
constexpr double kCopySlots = 40;      // per copy of a warp
constexpr double kBorderCopy = 1.8;    // factor of predicated copies
constexpr double kSpreadCopy = 0.1;    // in channels_last, per additional sector that lanes read
constexpr double kTileSlots = 550;     // fixed cost of a warp
constexpr double kTermCycles = 30;     // latency of a term in a single warp
constexpr double kCopyCycles = 6;      // per copy of a warp
constexpr double kStageCycles = 3000;
constexpr double kUnequal = 1.5;       // if phases have different numbers of taps; based on few measurements

int64_t resident_blocks(const DeviceInfo& device, const ThinGatherInstance& instance, const ThinGatherLayout& layout) {
  const int32_t threads_of_registers = min_gather_blocks(instance.channels * instance.positions) * kMaxGatherThreads;
  return resident_blocks(device, layout.shared_bytes, layout.threads, threads_of_registers);
}

// Whether every position of the gradient's only phase has every tap.
bool has_no_border(const ConvTProblem& problem, const Axis& axis) {
  return problem.direction == Direction::kGradInput && axis.padding == 0 &&
         (axis.in - 1) * axis.stride + (axis.kernel - 1) * axis.dilation < axis.out;
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ThinGatherInstance& instance,
              const ThinGatherLayout& layout, Plan* plan) {
  const bool forward = problem.direction == Direction::kForward;
  const bool inside = has_no_border(problem, problem.h) && has_no_border(problem, problem.w);
  const double sums = instance.channels * instance.positions, warps = layout.threads / 32;
  // Average taps per phase. The phase with the most taps determines the waiting time below.
  const double taps = forward ? static_cast<double>(problem.h.kernel) * problem.w.kernel / layout.by_phases.value
                              : static_cast<double>(problem.h.kernel) * problem.w.kernel;
  const double terms = layout.group_ci * taps;
  const double term_slots = sums + 2 * std::max(1, instance.channels / 4) + 4 +
                            (inside ? 0 : kBorder * instance.positions) +
                            kSourceRead * instance.positions / layout.lanes_channels;
  const int64_t* source = forward ? problem.x_stride : problem.y_stride;
  const bool spread = layout.group_ci > 1 && source[1] == 1 && source[3] != 1;
  const double sectors = spread ? 8.0 / (1 << layout.load_lanes_log2) - 1 : 0;
  const double copies = terms *
                        (layout.block_positions * (inside ? 1 : kBorderCopy) * (1 + kSpreadCopy * sectors) +
                         1.3 * layout.block_channels) /
                        32;
  const double slots = warps * (terms * term_slots + kTileSlots) + copies * kCopySlots;
  const double resident = static_cast<double>(std::min<int64_t>(resident_blocks(device, instance, layout),
                                                                ceil_div(plan->num_blocks, int64_t{device.num_sms})));
  const double waves = std::ceil(static_cast<double>(plan->num_blocks) / device.num_sms / resident);
  const double issue = resident * slots / 4;
  const double stage_terms = static_cast<double>(layout.chunk_ci) * layout.chunk_taps;
  const double longest = layout.terms / terms;
  const double wait = 4000 + longest * (terms * (term_slots + kTermCycles) + copies / warps * kCopyCycles +
                                        terms / stage_terms * kStageCycles / (layout.stages - 1));
  plan->compute_us = (longest > 1 ? kUnequal : 1) * waves * (std::max(issue, wait) + 0.3 * std::min(issue, wait)) /
                     (device.clock_ghz * 1e3);
  const auto bytes = static_cast<double>(element_bytes(problem.dtype));
  const double inputs = input_elements(problem);
  const double outputs = output_elements(problem);
  // In the forward pass, results of one phase are not contiguous. In NCHW a sector is written once per W phase.
  const bool scattered = forward && problem.w.stride > 1;
  const double scatter = !scattered ? 1 : is_channels_last(problem.y_stride) ? 5 : 2.0 * problem.w.stride;
  plan->memory_us = 1.3 * bytes * (inputs + scatter * outputs) * 1e-3 / device.copy_gb_per_s;
  plan->estimate_us =
      kLaunch + std::max(plan->compute_us, plan->memory_us) + 0.2 * std::min(plan->compute_us, plan->memory_us);
}

void add_plan(const ConvTProblem& problem, const DeviceInfo& device, const ThinGatherTile& tile, BestPlans* plans) {
  const ThinGatherInstance& instance = kThinGatherInstances[tile.instance];
  ThinGatherLayout layout;
  if (!make_thin_gather_layout(problem, tile, &layout)) return;
  if (layout.shared_bytes > device.shared_per_block || resident_blocks(device, instance, layout) < 1) return;
  Plan plan = begin_plan(instance.name, Precision::kIeee, tile);
  set_launch(layout, &plan);
  estimate(problem, device, instance, layout, &plan);
  plans->consider(plan);
}

// Channels and taps per stage: whole channels if there are few taps, else some of the taps of one channel.
std::vector<std::pair<int32_t, int32_t>> stage_chunks(int32_t channels, int32_t taps) {
  std::vector<std::pair<int32_t, int32_t>> chunks;
  for (const int32_t terms : {16, 32, 64}) {
    if (taps <= terms) chunks.push_back({std::min(terms / taps, channels), taps});
    if (taps > terms) chunks.push_back({1, ceil_div(taps, ceil_div(taps, terms))});
  }
  for (const int32_t ci : {1, 2, 4, 8}) {
    if (ci <= channels) chunks.push_back({ci, taps});
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  return chunks;
}

}  // namespace

void add_thin_gather_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  TermsLayout direct;
  if (problem.dtype != DataType::kFloat32 || !is_exact(problem) || !make_terms_layout(problem, &direct)) return;
  const bool forward = problem.direction == Direction::kForward;
  const auto channels = static_cast<int32_t>((forward ? problem.c_out : problem.c_in) / problem.groups);
  constexpr int32_t kMostChannels = 256;  // per group; larger layers are not thin
  if (channels == 1 && problem.groups > 1) return;  // depthwise layers have separate kernels
  if (channels > kMostChannels || direct.group_ci > kMostChannels) return;
  const auto chunks = stage_chunks(direct.group_ci, direct.terms / direct.group_ci);
  constexpr int32_t kMostWarps = kMaxGatherThreads / 32;
  for (int32_t index = 0; index < kNumThinGatherInstances; ++index) {
    if (kThinGatherInstances[index].direction != problem.direction) continue;
    BestPlans best(3);
    const int32_t units = ceil_div(channels, kThinGatherInstances[index].channels);
    for (const int32_t lanes : {1, 2, 4}) {
      if (lanes > 1 && lanes / 2 >= units) continue;
      for (int32_t warps_c = 1; warps_c <= kMostWarps && lanes * (warps_c - 1) < units; ++warps_c) {
        for (int32_t warps_p = 1; warps_c * warps_p <= kMostWarps; warps_p *= 2) {
          for (const auto& [chunk_ci, chunk_taps] : chunks) {
            for (const int32_t stages : {2, 3, 4}) {
              add_plan(problem, device, {index, lanes, warps_c, warps_p, chunk_ci, chunk_taps, stages}, &best);
            }
          }
        }
      }
    }
    best.append_to(plans);
  }
}

}  // namespace convt
