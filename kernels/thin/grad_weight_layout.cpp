#include "thin/grad_weight_layout.h"

#include <algorithm>

namespace convt {

bool lay_out_weight_tile(const ConvTProblem& problem, const WeightTile& tile, ThinGradWeightLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  constexpr int64_t kMostChannels = 1 << 16;
  if (problem.c_in > kMostChannels || problem.c_out > kMostChannels || problem.batch > INT32_MAX) return false;
  layout->h = h;
  layout->w = w;
  layout->groups = static_cast<int32_t>(problem.groups);
  layout->group_ci = static_cast<int32_t>(problem.c_in / problem.groups);
  layout->group_co = static_cast<int32_t>(problem.c_out / problem.groups);
  layout->strip = tile.strip;
  layout->strips = ceil_div(w.in, tile.strip);
  layout->unit_rows = tile.unit_rows;
  layout->units_of_strip = ceil_div(h.in, tile.unit_rows);
  const int64_t units = problem.batch * layout->strips * layout->units_of_strip;
  if (units > INT32_MAX / 2 || tile.units_per_chunk > INT32_MAX / 2) return false;
  layout->num_units = static_cast<int32_t>(units);
  layout->units_per_chunk = tile.units_per_chunk;
  layout->chunks = ceil_div(layout->num_units, tile.units_per_chunk);
  layout->block_ci = tile.block_ci;
  layout->block_co = tile.block_co;
  layout->block_kh = tile.block_kh;
  layout->run_tiles = static_cast<int32_t>(ceil_div(int64_t{w.kernel}, tile.block_kw));
  layout->kh_tiles = ceil_div(h.kernel, tile.block_kh);
  layout->co_tiles = ceil_div(layout->group_co, tile.block_co);
  layout->ci_tiles = ceil_div(layout->group_ci, tile.block_ci);
  const int64_t passes =
      int64_t{layout->run_tiles} * layout->kh_tiles * layout->co_tiles * layout->ci_tiles * layout->groups;
  if (passes > INT32_MAX / layout->chunks) return false;
  layout->passes = static_cast<int32_t>(passes);
  layout->num_blocks = passes * layout->chunks;

  if (tile.stages < kMinThinWeightStages || tile.stages > kMaxThinWeightStages) return false;
  const int32_t step = greatest_common_divisor(h.stride, h.dilation);
  const int64_t rows = int64_t{tile.tile_units} * tile.unit_rows;
  const int64_t window = ((rows - 1) * h.stride + int64_t{tile.block_kh - 1} * h.dilation) / step + 1;
  const int64_t apart = rows * tile.block_kh;
  const int64_t columns = int64_t{tile.strip - 1} * w.stride + (tile.block_kw - 1) * w.dilation + 1;
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;  // far beyond what fits
  constexpr int64_t kMostRows = 1 << 28;  // of grad_output, of a stage: their numbers stay within 32 bits
  if (rows * h.stride > kMostRows) return false;
  if (rows > kMostSlots || std::min(window, apart) > kMostSlots || columns > kMostColumns) return false;
  layout->tile_units = tile.tile_units;
  layout->stages = tile.stages;
  layout->apart = apart < window;
  layout->slots = static_cast<int32_t>(layout->apart ? apart : window);
  layout->slot_q = layout->apart ? tile.block_kh : h.stride / step;
  layout->slot_k = layout->apart ? 1 : h.dilation / step;
  layout->row_step = step;
  layout->columns = static_cast<int32_t>(columns);
  // Of a single row of pixels, or taps, the next one may be anywhere.
  return layout->slot_q <= kMostSlots && layout->slot_k <= kMostSlots;
}

bool lay_out_weight_stages(const ConvTProblem& problem, int64_t x_elems, int64_t gy_elems,
                           ThinGradWeightLayout* layout) {
  const int64_t bytes = element_bytes(problem.dtype);
  // A last row may be read up to its strip's end, beyond what exists.
  const int32_t beyond = 2 * vector_elements(problem.dtype);
  const int64_t x_bytes = ((x_elems + beyond) * bytes + 127) / 128 * 128;
  const int64_t gy_bytes = ((gy_elems + beyond) * bytes + 127) / 128 * 128;
  constexpr int64_t kMostBytes = 1 << 20;
  if ((x_bytes + gy_bytes) * layout->stages > kMostBytes) return false;
  layout->gy_begin = static_cast<int32_t>(x_bytes);
  layout->stage_bytes = static_cast<int32_t>(x_bytes + gy_bytes);
  layout->shared_bytes = kThinWeightHeadBytes + layout->stage_bytes * layout->stages;
  return true;
}

bool make_thin_grad_weight_layout(const ConvTProblem& problem, const ThinGradWeightTile& plan,
                                  ThinGradWeightLayout* layout) {
  const ThinGradWeightInstance& instance = kThinGradWeightInstances[plan.instance];
  if (plan.strip < 32 ? 32 % plan.strip != 0 : plan.strip % 32 != 0) return false;
  if (plan.block_ci % instance.thread_ci != 0 || plan.block_co % instance.thread_co != 0) return false;
  const WeightTile tile = {
      plan.strip,    plan.strip < 32 ? 32 / plan.strip : 1,         plan.block_ci,        plan.block_co,
      plan.block_kh, int64_t{plan.block_runs} * instance.thread_kw, plan.units_per_chunk, plan.tile_units,
      plan.stages,
  };
  if (!lay_out_weight_tile(problem, tile, layout)) return false;
  layout->block_runs = plan.block_runs;
  layout->warps_ci = plan.block_ci / instance.thread_ci;
  layout->warps_co = plan.block_co / instance.thread_co;
  const int64_t warps = int64_t{layout->warps_ci} * layout->warps_co * plan.block_runs * plan.block_kh;
  if (warps > kMaxThinWeightThreads / 32) return false;
  layout->threads = static_cast<int32_t>(32 * warps);
  // A row may begin and end within a vector, and each pitch may need up to a vector to be congruent.
  const int64_t ends = vector_elements(problem.dtype) - 1, rows = int64_t{layout->tile_units} * layout->unit_rows;
  const int64_t gy_rows = layout->slots * (layout->columns + 3 * ends) + (layout->apart ? rows * ends : 0);
  const int64_t x_channel = rows * (layout->strip + 3 * ends) + 3 * ends;
  return lay_out_weight_stages(problem, x_channel * plan.block_ci, (gy_rows + ends) * plan.block_co, layout);
}

bool has_merged_rows(const ThinGradWeightLayout& layout, const ConvTProblem& problem) {
  return layout.strip == layout.w.in && problem.x_stride[3] == 1 && problem.x_stride[2] == layout.strip;
}

ThinWeightPitches make_thin_weight_pitches(const ThinGradWeightLayout& layout, const ConvTProblem& problem) {
  const int32_t elems = vector_elements(problem.dtype), ends = 2 * (elems - 1);
  const int32_t rows = layout.tile_units * layout.unit_rows;
  ThinWeightPitches pitches;
  pitches.x_row =
      has_merged_rows(layout, problem) ? layout.strip : congruent_from(layout.strip + ends, problem.x_stride[2], elems);
  pitches.x_channel = congruent_from(rows * pitches.x_row + ends, problem.x_stride[1], elems);
  const int64_t row = problem.y_stride[2] % elems;  // all that pitches must be congruent to
  if (layout.apart) {
    pitches.gy_slot = congruent_from(layout.columns + ends, layout.h.dilation * row, elems);
    pitches.gy_tap = pitches.gy_slot;
    pitches.gy_position = congruent_from(layout.block_kh * pitches.gy_slot, layout.h.stride * row, elems);
  } else {
    pitches.gy_slot = congruent_from(layout.columns + ends, layout.row_step * row, elems);
    pitches.gy_tap = layout.slot_k * pitches.gy_slot;
    pitches.gy_position = layout.slot_q * pitches.gy_slot;
  }
  const int32_t all = layout.apart ? rows * pitches.gy_position : layout.slots * pitches.gy_slot;
  pitches.gy_channel = congruent_from(all, problem.y_stride[1], elems);
  return pitches;
}

}  // namespace convt
