// Candidates of the mma_rows family with estimated times.
#include <algorithm>
#include <cmath>
#include <vector>

#include "mma_sm90a/banks.h"
#include "mma_sm90a/rows_layout.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace convt {
namespace {

constexpr int32_t kResidentWarps = 16;  // warps per SM, limited by registers

// Microseconds, fitted to measured plans.
constexpr double kLaunch = 7;
constexpr double kPrologue = 7.6;
constexpr double kWeightFragment = 0.29;  // per fragment of a warp
// Per SM with all warps active.
constexpr double kUnit = 0.039;
constexpr double kGroup = 0.0244;   // per group of loads, with its products
constexpr double kBatch = 0.079;    // per batch of groups after the first, whose latency is hidden
constexpr double kBankWait = 0.0032;  // per wavefront, for eight results of a lane
constexpr double kFewWarps = 0.39;  // exponent of the slowdown with fewer warps
constexpr double kFill = 0.00015;   // per element of a slot that is filled again
// Additional time of stores, as a factor of the time at copy bandwidth.
constexpr double kMemory = 0.57;
constexpr double kRunBytes = 3200;  // cost of both ends of a run, in bytes
constexpr double kOneSlot = 1.15;   // slowdown with one slot, which cannot overlap products and stores

// Wavefronts of writing one position of all columns to shared memory, with a channel pitch of `channel` elements.
int32_t bank_waits(const MmaRowsLayout& layout, const std::vector<MmaColumn>& columns, int32_t element,
                   int32_t channel) {
  int32_t waits = 0;
  for (size_t first = 0; first < columns.size(); first += 8) {
    BankReads read;
    for (int32_t lane = 0; lane < 32; ++lane) {
      const MmaColumn& column = columns[first + static_cast<size_t>(lane / 4)];
      if (column.co >= layout.block_co) continue;
      const int32_t at =
          column.co * channel + column.phase_h * layout.w.out + column.phase_w + lane % 4 * 8 * layout.w.out_stride;
      read.add(at * element / 4);
    }
    waits += read.wavefronts;
  }
  return waits;
}

// The padding with the fewest wavefronts. It depends on the tile's rows and channels.
struct BestPadding {
  int32_t padding = 0;
  int32_t waits = INT32_MAX;
};

BestPadding best_padding(const MmaRowsLayout& layout, int32_t element) {
  std::vector<MmaColumn> columns;
  for (int32_t index = 0; index < layout.column_tiles * kMmaColumns; ++index) {
    columns.push_back(mma_column(layout, index));
  }
  BestPadding best;
  for (int32_t padding = 0; padding < 4; ++padding) {
    const int32_t asked = bank_waits(layout, columns, element, layout.stage_channel + padding * layout.result_vector);
    if (asked < best.waits) best = {padding, asked};
  }
  return best;
}

// The fraction of a CTA's tiles whose slot is filled again, because the slot's previous tile had another offset in a
// sector.
double refilled_tiles(const MmaRowsLayout& layout) {
  const int64_t row_stride = layout.tile_h * layout.h.out_stride * layout.result_stride[2];
  const int64_t image_stride = layout.result_stride[0];
  if (image_stride % layout.result_vector == 0 && row_stride % layout.result_vector == 0) return 0;
  constexpr int64_t kMostCounted = 512;
  int64_t shifts[kMostCounted];
  const int64_t counted = std::min<int64_t>(ceil_div(layout.num_tiles, layout.blocks_per_pass), kMostCounted);
  const int64_t step = layout.interleaved ? layout.blocks_per_pass : 1;
  int64_t refilled = 0;
  for (int64_t tile = 0, image = 0, row = 0; tile < counted; ++tile) {
    shifts[tile] = (image * image_stride + row * row_stride) % layout.result_vector;
    if (tile >= layout.slots) refilled += shifts[tile] != shifts[tile - layout.slots];
    image += step / layout.tiles_h, row += step % layout.tiles_h;
    if (row >= layout.tiles_h) ++image, row -= layout.tiles_h;
  }
  return static_cast<double>(refilled) / static_cast<double>(counted);
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const MmaRowsLayout& layout, int32_t resident,
              int32_t waits, Plan* plan) {
  const double waves =
      std::ceil(static_cast<double>(layout.num_blocks) / (static_cast<double>(resident) * device.num_sms));
  const double tiles = waves * ceil_div(layout.num_tiles, layout.blocks_per_pass);
  const double warps = layout.warps - kMmaRowsStorers;
  const double on_sm =
      static_cast<double>(std::min<int64_t>(resident, ceil_div(layout.num_blocks, int64_t{device.num_sms})));
  const auto element = static_cast<double>(element_bytes(problem.dtype));
  const int32_t batches = ceil_div(layout.groups_of_steps, mma_rows_batch(static_cast<int32_t>(element)));
  const double unit =
      kUnit + kGroup * layout.groups_of_steps + kBatch * (batches - 1) + kBankWait * waits / layout.column_units;
  const double few = std::pow((kResidentWarps - kMmaRowsStorers) / (on_sm * warps), kFewWarps);
  const double refill = refilled_tiles(layout) * layout.block_co * layout.tile_h * layout.row_step;
  const double fragments = static_cast<double>(layout.taps) * layout.steps * layout.column_tiles / layout.warps;
  plan->compute_us =
      kPrologue + kWeightFragment * fragments + tiles * (on_sm * layout.units * unit * few + kFill * refill);
  const double results = static_cast<double>(problem.batch) * static_cast<double>(problem.c_out);
  const double source = static_cast<double>(problem.batch) * static_cast<double>(problem.c_in);
  const double bytes = element * (results * problem.h.out * problem.w.out + source * problem.h.in * problem.w.in);
  plan->memory_us = kMemory * (bytes + kRunBytes * results * layout.tiles_h) * 1e-3 / device.copy_gb_per_s;
  plan->estimate_us = kLaunch + (plan->compute_us + plan->memory_us) * (resident * layout.slots > 1 ? 1 : kOneSlot);
}

}  // namespace

void add_mma_rows_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kForward || problem.batch == 0) return;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 128;  // per group; the family is for few channels
  if (group_ci > kMostChannels || group_co > kMostChannels) return;
  const auto co = static_cast<int32_t>(group_co);
  std::vector<int32_t> channels;
  for (const int32_t count : {1, 2, 4, 8, 16, 32}) {
    if (count < co) channels.push_back(count);
  }
  channels.push_back(co);

  auto add = [&](MmaRowsTile tile, BestPadding* padding, BestPlans* best) {
    MmaRowsLayout layout;
    if (!make_mma_rows_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block) return false;
    if (padding->waits == INT32_MAX)
      *padding = best_padding(layout, static_cast<int32_t>(element_bytes(problem.dtype)));
    tile.padding = padding->padding;
    if (!make_mma_rows_layout(problem, tile, &layout) || layout.shared_bytes > device.shared_per_block) return false;
    const auto resident =
        static_cast<int32_t>(resident_blocks(device, layout.shared_bytes, layout.threads, 32 * kResidentWarps));
    if (resident < 1) return false;
    // All CTAs are resident at once, the same number for each pass. With a multiple of eight CTAs, a CTA's tiles are
    // more often aligned alike.
    int32_t blocks = std::min(std::max(1, resident * device.num_sms / layout.passes), layout.num_tiles);
    if (tile.interleaved && blocks >= 16) blocks = blocks / 8 * 8;
    tile.blocks_per_pass = layout.blocks_per_pass = blocks;
    layout.num_blocks = int64_t{layout.passes} * blocks;
    Plan plan = begin_plan(kMmaRowsInstances[tile.instance].name, problem.precision, tile);
    set_launch(layout, &plan);
    estimate(problem, device, layout, resident, padding->waits, &plan);
    best->consider(plan);
    return true;
  };
  for (int32_t index = 0; index < kNumMmaRowsInstances; ++index) {
    const MmaInstance& instance = kMmaRowsInstances[index];
    if (instance.dtype != problem.dtype || instance.precision != problem.precision) continue;
    BestPlans best(4);
    for (const int32_t block_co : channels) {
      for (const int32_t tile_h : {1, 2, 4}) {
        BestPadding padding;
        for (const int32_t slots : {1, 2, 4}) {
          for (const int32_t warps : {6, 14}) {
            for (const bool interleaved : {true, false}) {
              if (!add(MmaRowsTile{index, warps, tile_h, block_co, slots, 0, interleaved, 1}, &padding, &best)) break;
            }
          }
        }
      }
    }
    best.append_to(plans);
  }
}

}  // namespace convt
