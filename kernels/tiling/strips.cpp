#include "tiling/strips.h"

#include "plan/shared_memory.h"
#include "problem/shapes.h"

namespace convt {

bool lay_out_strips(const ConvTProblem& problem, const StripTile& tile, StripLayout* layout) {
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

  if (tile.stages < kMinStripStages || tile.stages > kMaxStripStages) return false;
  layout->tile_units = tile.tile_units;
  layout->stages = tile.stages;
  const int64_t columns = int64_t{tile.strip - 1} * w.stride + (tile.block_kw - 1) * w.dilation + 1;
  return lay_out_slots(int64_t{tile.tile_units} * tile.unit_rows, tile.block_kh, columns, layout);
}

bool lay_out_strip_stages(const ConvTProblem& problem, int64_t x_elems, int64_t gy_elems, StripLayout* layout) {
  const int64_t bytes = element_bytes(problem.dtype);
  // Reads of the last row may extend to the end of its strip, past the existing columns.
  const int32_t beyond = 2 * vector_elements(problem.dtype);
  const int64_t x_bytes = round_up((x_elems + beyond) * bytes, 128);
  const int64_t gy_bytes = round_up((gy_elems + beyond) * bytes, 128);
  SharedMemory smem(kStripHeadBytes);
  smem.take((x_bytes + gy_bytes) * layout->stages);
  layout->gy_begin = static_cast<int32_t>(x_bytes);
  layout->stage_bytes = static_cast<int32_t>(x_bytes + gy_bytes);
  layout->shared_bytes = smem.bytes();
  return smem.fits();
}

bool has_merged_rows(const StripLayout& layout, const ConvTProblem& problem) {
  return layout.strip == layout.w.in && problem.x_stride[3] == 1 && problem.x_stride[2] == layout.strip;
}

StripPitches make_strip_pitches(const StripLayout& layout, const ConvTProblem& problem) {
  const int32_t elems = vector_elements(problem.dtype), ends = 2 * (elems - 1);
  const int32_t rows = layout.tile_units * layout.unit_rows;
  StripPitches pitches;
  pitches.x_row =
      has_merged_rows(layout, problem) ? layout.strip : congruent_from(layout.strip + ends, problem.x_stride[2], elems);
  pitches.x_channel = congruent_from(rows * pitches.x_row + ends, problem.x_stride[1], elems);
  const SlotPitches gy = make_slot_pitches(layout, problem, rows, layout.block_kh);
  pitches.gy_slot = gy.slot;
  pitches.gy_position = gy.position;
  pitches.gy_tap = gy.tap;
  pitches.gy_channel = gy.channel;
  return pitches;
}

}  // namespace convt
