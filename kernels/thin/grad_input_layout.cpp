#include "thin/grad_input_layout.h"

#include <algorithm>

#include "thin/instances.h"

namespace convt {

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
  // Groups of a CTA are neighbours in memory as their channels are: a stage has all channels of each.
  if (plan.block_groups > 1 && (layout->ci_tiles > 1 || layout->chunks > 1)) return false;
  const int64_t tiles = problem.batch * layout->tiles_h * layout->tiles_w;
  layout->passes = layout->ci_tiles * ceil_div(layout->groups, plan.block_groups);
  constexpr int64_t kMost = int64_t{1} << 31;  // what the kernel's divisions are exact for
  if (tiles >= kMost) return false;
  const int64_t blocks = ceil_div(tiles, int64_t{plan.tiles_per_block}) * layout->passes;
  if (tiles * std::max(layout->tiles_h, layout->tiles_w) >= kMost || blocks >= kMost) return false;
  layout->num_tiles = static_cast<int32_t>(tiles);
  layout->num_blocks = blocks;
  layout->warps_w = plan.tile_h / instance.positions * (plan.tile_w / 32);
  layout->warps_ci = plan.block_ci / instance.channels;
  layout->threads = 32 * layout->warps_w * layout->warps_ci * plan.block_groups;
  if (layout->threads > max_thin_gradient_threads(instance.channels * instance.positions)) return false;

  const int32_t step = greatest_common_divisor(h.stride, h.dilation);
  const int64_t window = (int64_t{plan.tile_h - 1} * h.stride + int64_t{h.kernel - 1} * h.dilation) / step + 1;
  const int64_t apart = int64_t{plan.tile_h} * h.kernel;
  const int64_t columns = int64_t{plan.tile_w - 1} * w.stride + int64_t{w.kernel - 1} * w.dilation + 1;
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;  // far beyond what fits
  constexpr int64_t kMostRows = 1 << 28;  // of grad_output, of a stage: their numbers stay within 32 bits
  if (int64_t{plan.tile_h} * h.stride > kMostRows) return false;
  if (std::min(window, apart) > kMostSlots || columns > kMostColumns) return false;
  layout->apart = apart < window;
  layout->slots = static_cast<int32_t>(layout->apart ? apart : window);
  layout->slot_q = layout->apart ? h.kernel : h.stride / step;
  layout->slot_k = layout->apart ? 1 : h.dilation / step;
  // Of a single row of positions, or taps, the next one may be anywhere.
  if (layout->slot_q > kMostSlots || layout->slot_k > kMostSlots) return false;
  layout->row_step = step;
  layout->columns = static_cast<int32_t>(columns);
  // A row may begin and end within a vector, and each pitch may need up to a vector to be congruent.
  const int32_t elems = vector_elements(problem.dtype);
  layout->most_pitch = layout->columns + 3 * (elems - 1);
  const int64_t channel_pitch = int64_t{layout->slots} * layout->most_pitch +
                                (layout->apart ? int64_t{plan.tile_h} * (elems - 1) : 0) + elems - 1;
  const int64_t stage = (channel_pitch * plan.chunk_co * plan.block_groups + 2 * elems) * element_bytes(problem.dtype);
  const int64_t weights =
      int64_t{plan.block_groups} * layout->group_co * h.kernel * w.kernel * plan.block_ci * sizeof(float);
  const int64_t stage_begin = (weights + 15) / 16 * 16;
  const int64_t stage_bytes = (stage + 15) / 16 * 16;
  constexpr int64_t kMostBytes = 1 << 20;
  if (stage_begin + stage_bytes * plan.stages > kMostBytes) return false;
  layout->most_channel_pitch = static_cast<int32_t>(channel_pitch);
  layout->stage_begin = static_cast<int32_t>(stage_begin);
  layout->stage_bytes = static_cast<int32_t>(stage_bytes);
  layout->shared_bytes = static_cast<int32_t>(stage_begin + stage_bytes * plan.stages);
  return true;
}

ThinPitches make_thin_pitches(const ThinGradInputLayout& layout, const ConvTProblem& problem) {
  const int32_t elems = vector_elements(problem.dtype);
  const int64_t row = problem.y_stride[2] % elems;  // all that pitches must be congruent to
  const int32_t least = layout.columns + 2 * (elems - 1);
  ThinPitches pitches;
  if (layout.apart) {
    pitches.slot = congruent_from(least, layout.h.dilation * row, elems);
    pitches.tap = pitches.slot;
    pitches.position = congruent_from(layout.h.kernel * pitches.slot, layout.h.stride * row, elems);
  } else {
    pitches.slot = congruent_from(least, layout.row_step * row, elems);
    pitches.tap = layout.slot_k * pitches.slot;
    pitches.position = layout.slot_q * pitches.slot;
  }
  const int32_t rows = layout.apart ? layout.tile_h * pitches.position : layout.slots * pitches.slot;
  pitches.channel = congruent_from(rows, problem.y_stride[1], elems);
  return pitches;
}

}  // namespace convt
