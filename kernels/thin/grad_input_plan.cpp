// Candidates of the thin engine for the gradient of the input, with estimated times.
#include <algorithm>
#include <cmath>

#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/shared_memory.h"
#include "thin/grad_input_layout.h"
#include "thin/instances.h"

namespace convt {
namespace {

// CTAs per SM.
int64_t resident_blocks(const DeviceInfo& device, const ThinGradInputInstance& instance,
                        const ThinGradInputLayout& layout) {
  const int32_t sums = instance.channels * instance.positions;
  const int32_t threads_of_registers = max_thin_gradient_threads(sums) * min_thin_gradient_blocks(sums);
  return resident_blocks(device, layout.shared_bytes, layout.threads, threads_of_registers);
}

// Shared-memory wavefronts that read a warp's 32 columns of grad_output for one tap.
double read_wavefronts(const Axis& w, DataType dtype) {
  const int32_t stride = w.stride;
  if (element_bytes(dtype) == 2) return std::min(32.0, std::max(1.0, stride / 2.0));
  if (w.dilation == 1 && stride % 4 == 0) return std::min(8.0, stride / 4.0);
  if (w.dilation == 1 && stride % 2 == 0) return 1 + 1.0 / std::min(w.kernel, 4);  // single columns at row ends
  return greatest_common_divisor(stride, 32);
}

void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ThinGradInputInstance& instance,
              const ThinGradInputLayout& layout, Plan* plan) {
  const double warps = layout.threads / 32.0, channels = instance.channels, positions = instance.positions;
  const double taps = static_cast<double>(problem.h.kernel) * problem.w.kernel;
  const bool half = element_bytes(problem.dtype) == 2;
  const bool channels_last = is_channels_last(problem.x_stride);
  // Warp instructions and wavefronts per tap and channel.
  const double border = std::min(1.0, 1.5 / layout.tiles_h + 1.5 / layout.tiles_w);
  const double slots =
      channels * positions * (1 + 0.1 * border) + positions * (1.25 + border + (half ? 1.2 : 0)) + channels / 4 + 5;
  const double wavefronts = positions * read_wavefronts(problem.w, problem.dtype) + std::max(1.0, channels / 4);
  // Rows are copied by vectors, or element by element if the channels are contiguous.
  const double elems = static_cast<double>(layout.slots) * layout.columns * layout.block_groups * layout.chunk_co;
  const double copy_slots =
      elems / vector_elements(problem.dtype) / 32 * 12 + (channels_last ? elems / 32 * (half ? 20 : 14) : 0);
  const double stage_taps = taps * layout.chunk_co;
  const double tile_slots =
      layout.chunks * (warps * (stage_taps * slots + layout.chunk_co * layout.h.kernel * 30.0 + 400) + copy_slots) +
      warps * (channels * positions * 3 + 400);
  const double tile_wavefronts = layout.chunks * warps * stage_taps * wavefronts;
  const double resident = static_cast<double>(std::min<int64_t>(resident_blocks(device, instance, layout),
                                                                ceil_div(plan->num_blocks, int64_t{device.num_sms})));
  const double busy = std::min(0.85, 0.3 + 0.04 * resident * warps);
  const double cycles = std::max(tile_slots / 4, tile_wavefronts) / busy;
  const double weights =
      1500 + static_cast<double>(layout.block_groups) * layout.group_co * taps * layout.block_ci / layout.threads * 60;
  const double waves = std::ceil(static_cast<double>(plan->num_blocks) / device.num_sms / resident);
  // Fitted to measurements: half precision's conversions and branches cost most in threads with many accumulators.
  const double fitted = !half ? 1.2 : channels * positions > 32 ? 1.75 : 1.3;
  // A warp waits for its own instructions even if few other warps are resident. This dominates in small layers.
  const double wait = 4.5 * tile_slots / warps;
  plan->compute_us = fitted * waves * (layout.tiles_per_block * std::max(resident * cycles, wait) + weights) /
                     (device.clock_ghz * 1e3);

  const double bytes = static_cast<double>(element_bytes(problem.dtype)), us_per_byte = 1e-3 / device.copy_gb_per_s;
  const double result_bytes = bytes * input_elements(problem);
  const double source_bytes = bytes * layout.num_tiles * layout.slots * (layout.columns + 8.0) * problem.c_out;
  const double again = 0.6 * source_bytes * (layout.ci_tiles - 1);  // read from L2
  // Measured in channels_last: with several channels, every element loads its whole sector.
  const bool alone = channels_last && problem.c_in == problem.groups && problem.c_out == problem.groups;
  const double layout_cost = !channels_last || alone || half ? 1 : 1.3;
  const double spread = channels_last && !alone ? std::min(32 / bytes, static_cast<double>(problem.c_out)) : 1;
  plan->memory_us = us_per_byte * ((channels_last ? 3 : 1) * result_bytes + spread * source_bytes + again) /
                    std::min(1.0, 0.35 + 0.22 * resident * (layout.stages - 1));
  double smaller = 0.2;  // fraction of the shorter time that is not hidden
  if (alone) {
    // A single channel is loaded and stored element by element. Products do not hide these copies.
    plan->compute_us *= 0.33;
    plan->memory_us *= half ? 8.9 : 4.9;
    smaller = 1;
  }
  plan->estimate_us = layout_cost * (std::max(plan->compute_us, plan->memory_us) +
                                     smaller * std::min(plan->compute_us, plan->memory_us)) +
                      (is_exact(problem) ? 8
                       : half            ? 18
                                         : 14);
}

void add_plan(const ConvTProblem& problem, const DeviceInfo& device, const ThinGradInputTile& tile, BestPlans* plans) {
  const ThinGradInputInstance& instance = kThinGradInputInstances[tile.instance];
  ThinGradInputLayout layout;
  Plan plan = begin_plan(instance.name, Precision::kIeee, tile);
  if (!make_thin_grad_input_layout(problem, tile_of<ThinGradInputTile>(plan), &layout)) return;
  const int64_t resident = resident_blocks(device, instance, layout);
  if (layout.shared_bytes > device.shared_per_block || resident < 1) return;
  // One wave: all CTAs process about the same number of tiles.
  const int64_t blocks = std::max<int64_t>(device.num_sms * resident / layout.passes, 1);
  tile_of<ThinGradInputTile>(plan).tiles_per_block = static_cast<int32_t>(ceil_div(int64_t{layout.num_tiles}, blocks));
  if (!make_thin_grad_input_layout(problem, tile_of<ThinGradInputTile>(plan), &layout)) return;
  set_launch(layout, &plan);
  estimate(problem, device, instance, layout, &plan);
  plans->consider(plan);
}

}  // namespace

bool make_thin_grad_input_layout(const ConvTProblem& problem, const ThinGradInputTile& plan,
                                 ThinGradInputLayout* layout) {
  const ThinGradInputInstance& instance = kThinGradInputInstances[plan.instance];
  const Axis &h = problem.h, &w = problem.w;
  if (h.kernel > kMaxThinGradientTaps || w.kernel > kMaxThinGradientTaps) return false;
  constexpr int64_t kMostChannels = 1 << 16;
  if (problem.c_in > kMostChannels || problem.c_out > kMostChannels) return false;
  layout->h = h;
  layout->w = w;
  layout->groups = static_cast<int32_t>(problem.groups);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->tile_h = plan.tile_h;
  layout->tile_w = plan.tile_w;
  layout->tiles_h = ceil_div(h.in, plan.tile_h);
  layout->tiles_w = ceil_div(w.in, plan.tile_w);
  layout->tiles_per_block = plan.tiles_per_block;
  layout->block_ci = plan.block_ci;
  layout->block_groups = plan.block_groups;
  layout->ci_tiles = ceil_div(layout->group_ci, plan.block_ci);
  layout->chunk_co = plan.chunk_co;
  layout->chunks = ceil_div(layout->group_co, plan.chunk_co);
  layout->stages = plan.stages;
  if (plan.block_ci % instance.channels != 0) return false;
  if (plan.tile_h % instance.positions != 0 || plan.tile_w % 32 != 0) return false;
  // The groups of a CTA are contiguous in memory only if a stage contains all channels of each.
  if (plan.block_groups > 1 && (layout->ci_tiles > 1 || layout->chunks > 1)) return false;
  const int64_t tiles = problem.batch * layout->tiles_h * layout->tiles_w;
  layout->passes = layout->ci_tiles * ceil_div(layout->groups, plan.block_groups);
  constexpr int64_t kMost = int64_t{1} << 31;  // bound for exact divisions in the kernel
  if (tiles >= kMost) return false;
  const int64_t blocks = ceil_div(tiles, int64_t{plan.tiles_per_block}) * layout->passes;
  if (tiles * std::max(layout->tiles_h, layout->tiles_w) >= kMost || blocks >= kMost) return false;
  layout->num_tiles = static_cast<int32_t>(tiles);
  layout->num_blocks = blocks;
  layout->warps_w = plan.tile_h / instance.positions * (plan.tile_w / 32);
  layout->warps_ci = plan.block_ci / instance.channels;
  layout->threads = 32 * layout->warps_w * layout->warps_ci * plan.block_groups;
  if (layout->threads > max_thin_gradient_threads(instance.channels * instance.positions)) return false;

  const int64_t columns = int64_t{plan.tile_w - 1} * w.stride + int64_t{w.kernel - 1} * w.dilation + 1;
  if (!lay_out_slots(plan.tile_h, h.kernel, columns, layout)) return false;
  // A row may start and end within a vector. Each pitch may need up to a vector of padding for congruence.
  const int32_t elems = vector_elements(problem.dtype);
  layout->most_pitch = layout->columns + 3 * (elems - 1);
  const int64_t channel_pitch = int64_t{layout->slots} * layout->most_pitch +
                                (layout->apart ? int64_t{plan.tile_h} * (elems - 1) : 0) + elems - 1;
  const int64_t stage = (channel_pitch * plan.chunk_co * plan.block_groups + 2 * elems) * element_bytes(problem.dtype);
  const int64_t weights =
      int64_t{plan.block_groups} * layout->group_co * h.kernel * w.kernel * plan.block_ci * sizeof(float);
  const int64_t stage_bytes = round_up(stage, 16);
  SharedMemory smem;
  smem.take(weights);
  layout->stage_begin = smem.take(stage_bytes * plan.stages, 16);
  layout->stage_bytes = static_cast<int32_t>(stage_bytes);
  layout->shared_bytes = smem.bytes();
  layout->most_channel_pitch = static_cast<int32_t>(channel_pitch);
  return smem.fits();
}

void add_thin_grad_input_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  if (problem.direction != Direction::kGradInput) return;
  const int64_t group_ci = problem.c_in / problem.groups, group_co = problem.c_out / problem.groups;
  constexpr int64_t kMostChannels = 128;  // per group; larger layers are not thin
  if (group_ci > kMostChannels || group_co > kMostChannels) return;
  const int32_t co = static_cast<int32_t>(group_co);
  std::vector<int32_t> chunks;
  for (const int32_t count : {1, 2, 4, 8, 16}) {
    if (count < co) chunks.push_back(count);
  }
  chunks.push_back(co);
  for (int32_t index = 0; index < kNumThinGradInputInstances; ++index) {
    const ThinGradInputInstance& instance = kThinGradInputInstances[index];
    if (instance.dtype != problem.dtype) continue;
    BestPlans best(4);
    const int32_t channel_blocks = static_cast<int32_t>(ceil_div(group_ci, int64_t{instance.channels}));
    for (int32_t ci_tiles = 1; ci_tiles <= channel_blocks; ci_tiles *= 2) {
      const int32_t blocks_ci = ceil_div(channel_blocks, ci_tiles);
      for (const int32_t block_groups : {1, 2, 4, 8}) {
        if (block_groups > 1 && (ci_tiles > 1 || block_groups > problem.groups)) continue;
        for (const int32_t warps_h : {1, 2, 3, 4, 8}) {
          for (const int32_t strips : {1, 2, 4, 5, 8}) {
            const int32_t warps = warps_h * strips * blocks_ci * block_groups;
            const int32_t height = warps_h * instance.positions, width = strips * 32;
            if (32 * warps > max_thin_gradient_threads(instance.channels * instance.positions)) continue;
            if ((warps_h > 1 && height - instance.positions >= problem.h.in) ||
                (strips > 1 && width - 32 >= problem.w.in)) {
              continue;
            }
            for (const int32_t chunk : chunks) {
              if (block_groups > 1 && chunk < co) continue;
              for (const int32_t stages : {2, 3}) {
                add_plan(problem, device,
                         ThinGradInputTile{index, height, width, blocks_ci * instance.channels, block_groups, chunk,
                                           stages, 1},
                         &best);
              }
            }
          }
        }
      }
    }
    best.append_to(plans);
  }
}

}  // namespace convt
