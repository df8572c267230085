// Candidates of the mma engine's tiles of whole rows and their estimated times.
#include <algorithm>
#include <cmath>

#include "plan/engines.h"
#include "plan/mma_rows.h"

namespace convt {
namespace {

constexpr int32_t kResidentWarps = 16;    // by registers
constexpr int32_t kReservedBytes = 1024;  // shared memory that CUDA keeps of every CTA

// Microseconds, from a fit to measured plans (docs/performance.md).
constexpr double kLaunch = 7;
constexpr double kPrologue = 5;
constexpr double kWeightFragment = 0.29;  // of a warp
// Of an SM, with all of its warps at work.
constexpr double kUnit = 0.12;
constexpr double kGroup = 0.012;  // of loads
constexpr double kElements = 0.08;  // of these, in groups without vectors
constexpr double kStep = 0.015;   // of K
constexpr double kFill = 0.00006;  // of an element of a slot whose place in a sector has moved
// Times the time at copy bandwidth.
constexpr double kMemory = 1.08;
constexpr double kRunBytes = 300;  // that a run's beginning and end cost

// The part of a CTA's tiles whose slot has to be filled again, because the tile before began elsewhere in a sector.
double refilled_tiles(const MmaLayout& layout) {
  auto shift = [&layout](int64_t number) {
    const int64_t tile = layout.interleaved ? number * layout.blocks_per_pass : number;
    const int64_t image = tile / layout.tiles_h, row = tile % layout.tiles_h * layout.tile_h * layout.h.out_stride;
    return (image * layout.result_stride[0] + row * layout.result_stride[2]) % layout.result_vector;
  };
  const int64_t tiles = ceil_div(layout.num_tiles, layout.blocks_per_pass);
  const int64_t counted = std::min<int64_t>(tiles, 512);
  int64_t refilled = 0;
  for (int64_t tile = layout.slots; tile < counted; ++tile) refilled += shift(tile) != shift(tile - layout.slots);
  return static_cast<double>(refilled) / static_cast<double>(counted);
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const MmaLayout& layout, int32_t resident,
              Plan* plan) {
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const double waves =
      std::ceil(static_cast<double>(layout.num_blocks) / (static_cast<double>(resident) * device.num_sms));
  const double tiles = waves * ceil_div(layout.num_tiles, layout.blocks_per_pass);
  const double warps = layout.warps - kMmaRowsStorers;
  const double on_sm =
      static_cast<double>(std::min<int64_t>(resident, ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const double group = kGroup + (layout.vector > 1 ? 0 : kElements);
  const double unit = kUnit + group * layout.groups_of_steps + kStep * layout.taps * layout.steps;
  const double fragments = layout.taps * layout.steps * layout.column_tiles / warps;
  const double refill = refilled_tiles(layout) * kFill * layout.block_co * layout.tile_h * layout.row_step;
  // Few warps wait for memory and for each other.
  plan->compute_us =
      kPrologue + kWeightFragment * fragments +
      tiles * (on_sm * layout.units * unit * std::sqrt((kResidentWarps - kMmaRowsStorers) / (on_sm * warps)) + refill);
  const double runs = static_cast<double>(problem.batch) * static_cast<double>(problem.c_out) * layout.tiles_h;
  const double bytes = element * static_cast<double>(problem.batch) *
                       (static_cast<double>(problem.c_out) * problem.h.out * problem.w.out +
                        static_cast<double>(problem.c_in) * problem.h.in * problem.w.in);
  plan->memory_us = kMemory * (bytes + kRunBytes * runs) * 1e-3 / device.copy_gb_per_s;
  // One slot alone is computed and stored in turns.
  const double overlap = resident * layout.slots > 1 ? 2.2 : 1.25;
  plan->estimate_us =
      kLaunch + std::pow(std::pow(plan->compute_us, overlap) + std::pow(plan->memory_us, overlap), 1 / overlap);
}

}  // namespace

void add_mma_rows_plans(const ConvTProblem& problem, const DeviceInfo& device, std::vector<Plan>* plans) {
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 128;  // of a group; more is not thin
  if (group_ci > kMostChannels || group_co > kMostChannels) return;
  const auto co = static_cast<int32_t>(group_co);
  std::vector<int32_t> channels;
  for (const int32_t count : {1, 2, 4, 8, 16, 32}) {
    if (count < co) channels.push_back(count);
  }
  channels.push_back(co);

  auto add = [&](MmaRowsPlan tile) {
    MmaLayout layout;
    if (!make_mma_rows_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block) return false;
    const int32_t resident =
        std::min(kResidentWarps / layout.warps, device.shared_per_sm / (layout.shared_bytes + kReservedBytes));
    if (resident < 1) return false;
    // All CTAs are resident from the beginning, as many of each pass; by eights, so that a CTA's tiles may begin alike.
    int32_t blocks = std::min(std::max(1, resident * device.num_sms / layout.passes), layout.num_tiles);
    if (tile.interleaved && blocks >= 16) blocks = blocks / 8 * 8;
    tile.blocks_per_pass = layout.blocks_per_pass = blocks;
    layout.num_blocks = int64_t{layout.passes} * blocks;
    Plan plan{};
    plan.engine = Engine::kMma;
    plan.kernel = kMmaRowsInstances[tile.instance].name;
    plan.served_precision = problem.precision;
    plan.threads = layout.threads;
    plan.shared_bytes = layout.shared_bytes;
    plan.num_blocks = layout.num_blocks;
    plan.mma_rows = tile;
    estimate(problem, device, layout, resident, &plan);
    plans->push_back(plan);
    return true;
  };
  for (int32_t index = 0; index < kNumMmaRowsInstances; ++index) {
    const MmaInstance& instance = kMmaRowsInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    const size_t before = plans->size();
    for (const int32_t block_co : channels) {
      for (const int32_t tile_h : {1, 2, 4}) {
        for (const int32_t slots : {1, 2, 4}) {
          for (const int32_t warps : {6, 14}) {
            for (const bool interleaved : {false, true}) {
              if (!add(MmaRowsPlan{index, warps, tile_h, block_co, slots, interleaved, 1})) break;
            }
          }
        }
      }
    }
    // The best few are enough.
    constexpr size_t kKept = 4;
    const auto begin = plans->begin() + static_cast<std::ptrdiff_t>(before);
    std::stable_sort(begin, plans->end(), [](const Plan& a, const Plan& b) { return a.estimate_us < b.estimate_us; });
    if (plans->size() > before + kKept) plans->resize(before + kKept);
  }
}

}  // namespace convt
