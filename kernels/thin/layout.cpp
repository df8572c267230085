#include "thin/layout.h"

#include <algorithm>

#include "plan/shared_memory.h"
#include "problem/shapes.h"

namespace convt {
namespace {

int32_t floor_log2(int32_t a) {
  int32_t log2 = 0;
  while ((2 << log2) <= a) ++log2;
  return log2;
}

// Lanes that share a run of `count` copies: a power of two that leaves few of them idle.
int32_t lanes_log2(int32_t count, int32_t threads) {
  int32_t best = 0;
  double best_cost = 1e30;
  for (int32_t log2 = 0; (1 << log2) <= threads; ++log2) {
    const int32_t lanes = 1 << log2;
    const double cost = ceil_div(count, lanes) * lanes * (1 + 6.0 / lanes);
    if (cost < best_cost) best = log2, best_cost = cost;
  }
  return best;
}

bool every_phase_has_every_tap(const PhaseAxis& axis) {
  for (int32_t phase = 0; phase < axis.out_stride; ++phase) {
    if ((axis.filled >> phase & 1) == 0) continue;
    for (int32_t t = 0; t < axis.num_taps; ++t) {
      if (weight_tap(axis, t, phase) < 0) return false;
    }
  }
  return true;
}

// Lays out the source tile of one channel. Returns false if it is far too large.
bool lay_out_source(int32_t element, ThinLayout* layout) {
  const PhaseAxis &h = layout->h, &w = layout->w;
  const int64_t* stride = layout->source_stride;
  layout->load_mode = stride[3] != 1 && stride[1] == 1 ? ThinLoad::kChannels : ThinLoad::kElements;
  layout->vector_bytes = element;
  int32_t vector = 1;
  if (stride[3] == 1) {
    for (int32_t bytes = 16; bytes >= 4 && vector == 1; bytes /= 2) {
      const int32_t elems = bytes / element;
      const bool aligned = stride[0] % elems == 0 && stride[1] % elems == 0 && stride[2] % elems == 0 &&
                           w.in % elems == 0 && (layout->tiles_w == 1 || layout->tile_w % elems == 0);
      if (!aligned) continue;
      layout->load_mode = ThinLoad::kVectors;
      layout->vector_bytes = bytes;
      vector = elems;
    }
  }
  layout->row_offset = h.least_offset;
  layout->rows = layout->tile_h + h.greatest_offset - h.least_offset;
  layout->column_offset = w.least_offset - modulo(w.first + w.least_offset, vector);  // columns start on a vector
  layout->columns = round_up(layout->tile_w + w.greatest_offset - layout->column_offset, vector);
  layout->pitch = layout->columns;
  constexpr int64_t kMostElements = 1 << 20;
  if (int64_t{layout->rows} * layout->pitch > kMostElements) return false;
  // With lanes along channels, SmallDivmod splits an index within the tile into row and column.
  const int64_t places = int64_t{layout->rows} * layout->columns;
  if (layout->load_mode == ThinLoad::kChannels && places * layout->columns >= int64_t{1} << 32) return false;
  layout->channel_pitch = layout->rows * layout->pitch;
  if (layout->load_mode == ThinLoad::kChannels) layout->channel_pitch |= 1;  // no bank conflicts between channels
  for (int32_t t = 0; t < h.num_taps; ++t) layout->tap_row[t] = (h.offset[t] - layout->row_offset) * layout->pitch;
  for (int32_t t = 0; t < w.num_taps; ++t) layout->tap_column[t] = w.offset[t] - layout->column_offset;
  layout->load_lanes_log2 = lanes_log2(
      layout->load_mode == ThinLoad::kChannels ? layout->chunk_ci * layout->block_groups : layout->columns / vector,
      layout->threads);
  return true;
}

// Lays out the staged results and returns their bytes.
int64_t lay_out_results(int32_t element, ThinLayout* layout) {
  const int32_t vector = 16 / element;
  const int64_t* stride = layout->result_stride;
  const int32_t channels = layout->block_groups * layout->block_co;
  const int32_t phases = layout->phase_splits > 1 ? 1 : layout->h.out_stride;
  const int32_t width = layout->tile_w * layout->w.out_stride;
  layout->channels_last_result = is_channels_last(stride);
  if (layout->channels_last_result) {
    // Vectors must be whole for every first channel of a pass.
    const bool vectors = stride[3] % vector == 0 && layout->block_co % vector == 0 && layout->group_co % vector == 0;
    layout->store_vector = vectors ? vector : 1;
    layout->stage_channel = 1;
    layout->stage_column = channels + (vectors ? vector : 1 - channels % 2);
    layout->stage_phase = width * layout->stage_column;
    layout->stage_row = phases * layout->stage_phase;
    layout->store_lanes_log2 =
        std::min(lanes_log2(channels / layout->store_vector, layout->threads), floor_log2(layout->threads));
    layout->store_rows_log2 = std::min(floor_log2(layout->threads) - layout->store_lanes_log2, floor_log2(width));
    return int64_t{layout->tile_h} * layout->stage_row * element;
  }
  // The staged strides are congruent to the result's strides modulo a vector, so that both have the same alignment.
  layout->store_vector = vector;
  // The stride of a dimension of size 1 is arbitrary.
  const int64_t channel_stride = layout->groups * layout->group_co > 1 ? stride[1] : 0;
  layout->aligned_runs = stride[0] % vector == 0 && channel_stride % vector == 0 && stride[2] % vector == 0;
  layout->stage_column = 1;
  layout->stage_phase = round_up(width, vector) + modulo(stride[2], vector);
  layout->stage_row = phases > 1 ? phases * layout->stage_phase
                                 : round_up(width, vector) + modulo(stride[2] * layout->h.out_stride, vector);
  layout->stage_channel = round_up(layout->tile_h * layout->stage_row, vector) + modulo(channel_stride, vector);
  // The first and last elements of a run need one lane each.
  layout->store_lanes_log2 = std::max(lanes_log2(ceil_div(width, vector), 32), vector == 4 ? 2 : 3);
  layout->store_rows_log2 =
      std::min(floor_log2(layout->threads) - layout->store_lanes_log2, floor_log2(layout->tile_h * phases));
  return (int64_t{channels} * layout->stage_channel + vector) * element;
}

}  // namespace

bool begin_thin_layout(const ConvTProblem& problem, ThinLayout* layout) {
  *layout = ThinLayout{};
  if (problem.direction != Direction::kForward) return false;
  if (!make_phase_axis(problem.h, &layout->h) || !make_phase_axis(problem.w, &layout->w)) return false;
  if (!make_channel_groups(problem, layout) || weight_reach(problem) > INT32_MAX) return false;
  layout->all_taps = every_phase_has_every_tap(layout->h) && every_phase_has_every_tap(layout->w);
  layout->mixed_quads = layout->all_taps;
  layout->taps = layout->h.num_taps * layout->w.num_taps;
  return true;
}

bool finish_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                        ThinLayout* layout) {
  if (plan.block_groups > 1 && (plan.block_co < layout->group_co || plan.chunk_ci < layout->group_ci)) return false;
  layout->tile_h = plan.tile_h;
  layout->tile_w = plan.tile_w;
  layout->tiles_h = ceil_div(layout->h.positions, plan.tile_h);
  layout->tiles_w = ceil_div(layout->w.positions, plan.tile_w);
  if (plan.block_co * plan.block_groups > kMaxThinChannels) return false;
  const int64_t tiles = problem.batch * layout->tiles_h * layout->tiles_w;
  if (tiles > INT32_MAX / 2) return false;
  layout->num_tiles = static_cast<int32_t>(tiles);
  layout->tiles_per_block = plan.tiles_per_block;
  layout->phase_splits = plan.split_phases ? layout->h.out_stride : 1;
  layout->block_co = plan.block_co;
  layout->co_tiles = ceil_div(layout->group_co, plan.block_co);
  layout->block_groups = plan.block_groups;
  const int64_t passes = int64_t{layout->phase_splits} * layout->co_tiles * ceil_div(layout->groups, plan.block_groups);
  layout->num_blocks = ceil_div(tiles, int64_t{plan.tiles_per_block}) * passes;
  if (layout->num_blocks > INT32_MAX) return false;
  layout->passes = static_cast<int32_t>(passes);

  const int32_t filled = (plan.split_phases ? 1 : layout->h.num_filled) * layout->w.num_filled;
  const int32_t virtual_outputs = filled * (layout->mixed_quads ? plan.block_co : round_up(plan.block_co, 4));
  layout->output_blocks = ceil_div(virtual_outputs, outputs);
  layout->outputs = layout->output_blocks * outputs;
  layout->chunk_ci = plan.chunk_ci;
  const int32_t element = static_cast<int32_t>(element_bytes(problem.dtype));
  // The thread count depends on the pitch, and the lane assignment depends on the thread count. Start with the maximum.
  layout->threads = 32 * kMaxThinWarps;
  if (!lay_out_source(element, layout)) return false;
  layout->warps_w = ceil_div((plan.tile_h - 1) * layout->pitch + plan.tile_w, 32 * positions);
  const int64_t warps = int64_t{layout->warps_w} * layout->output_blocks * plan.block_groups;
  if (warps > kMaxThinWarps) return false;
  layout->threads = static_cast<int32_t>(32 * warps);
  const int32_t units_log2 = floor_log2(layout->threads);
  layout->load_lanes_log2 = std::min(layout->load_lanes_log2, units_log2);
  layout->load_channels_log2 =
      std::min(units_log2 - layout->load_lanes_log2, floor_log2(plan.chunk_ci * plan.block_groups));
  const int64_t results = lay_out_results(element, layout);
  const int64_t weights = int64_t{4} * plan.block_groups * layout->group_ci * layout->taps * layout->outputs;
  // The kernel also reads positions between the rows of a tile and after its end. Their results are unused.
  const int64_t source =
      element * (int64_t{plan.chunk_ci} * plan.block_groups * layout->channel_pitch + 32 * positions * layout->warps_w);
  // Two extra steps, which the mainloop prefetches.
  const int64_t steps = int64_t{plan.chunk_ci} * layout->taps + 2;
  SharedMemory smem;
  smem.take(std::max(source, results));
  layout->weight_begin = smem.take(weights, 16);
  layout->output_begin = smem.take(4 * plan.block_groups * layout->outputs);
  layout->bias_begin = smem.take(4 * plan.block_groups * plan.block_co);
  layout->step_begin = smem.take(8 * steps, 8);
  layout->quad_begin = smem.take(layout->all_taps ? 0 : steps * layout->output_blocks);
  layout->outside_begin = smem.take(4 * (plan.tile_h + plan.tile_w), 4);
  layout->position_begin = smem.take(8 * 32 * positions * layout->warps_w, 8);
  if (!smem.fits()) return false;
  layout->shared_bytes = round_up(smem.bytes(), 16);
  // While the weights are loaded, a table of their offsets occupies the source's memory.
  if (4 * layout->taps * layout->outputs > layout->weight_begin) return false;
  return tiles * std::max(layout->tiles_w, layout->tiles_h) < (int64_t{1} << 31);
}

bool make_thin_layout(const ConvTProblem& problem, const ThinTile& plan, int32_t outputs, int32_t positions,
                      ThinLayout* layout) {
  if (!begin_thin_layout(problem, layout) || !finish_thin_layout(problem, plan, outputs, positions, layout)) {
    return false;
  }
  const int32_t phases = plan.split_phases ? 1 : layout->h.out_stride;
  layout->by_tiles_w = SmallDivmod::of(layout->tiles_w);
  layout->by_tiles_h = SmallDivmod::of(layout->tiles_h);
  layout->by_columns = SmallDivmod::of(layout->columns);
  layout->by_phases_h = SmallDivmod::of(phases);
  layout->by_pitch = SmallDivmod::of(layout->pitch);
  layout->by_weights = SmallDivmod::of(layout->taps * layout->outputs);
  layout->by_group_ci = SmallDivmod::of(layout->group_ci);
  return true;
}

}  // namespace convt
