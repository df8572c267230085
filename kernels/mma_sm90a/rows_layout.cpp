// The layout of tiles of whole rows.
#include "mma_sm90a/rows_layout.h"

#include <algorithm>
#include <cmath>

#include "mma_sm90a/columns.h"

namespace convt {
namespace {

int32_t modulo(int64_t a, int32_t b) { return static_cast<int32_t>((a % b + b) % b); }
int32_t round_up(int32_t a, int32_t b) { return ceil_div(a, b) * b; }

}  // namespace

bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaLayout* layout) {
  *layout = MmaLayout{};
  const MmaInstance& instance = kMmaRowsInstances[plan.instance];
  const int64_t* y_stride = problem.y_stride;
  if (problem.direction != Direction::kForward || y_stride[3] != 1 || problem.x_stride[3] != 1) return false;
  if (!make_mma_columns(problem, plan.block_co, false, instance, layout)) return false;
  const ThinAxis& h = layout->h;
  ThinAxis& w = layout->w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t sector = 32 / element;
  // A tile's rows of a channel follow each other in memory, and the shortest has whole sectors.
  if (y_stride[2] != w.out || w.out < 2 * sector) return false;

  layout->warps = plan.warps + kMmaRowsStorers;
  layout->threads = 32 * layout->warps;
  // Units begin where vectors of four columns do.
  const int32_t before = w.first % 4;
  w.first -= before, w.positions += before;
  layout->interleaved = plan.interleaved;
  layout->tile_h = plan.tile_h;
  layout->tile_w = w.positions;
  layout->tiles_h = ceil_div(h.positions, plan.tile_h);
  layout->tiles_w = 1;
  const int64_t tiles = problem.batch * layout->tiles_h;
  if (tiles > INT32_MAX / 2 || tiles * layout->tiles_h >= (int64_t{1} << 31)) return false;
  layout->num_tiles = static_cast<int32_t>(tiles);
  const int64_t passes = int64_t{layout->co_tiles} * layout->groups;
  layout->blocks_per_pass = static_cast<int32_t>(std::min<int64_t>(plan.blocks_per_pass, tiles));
  layout->num_blocks = passes * layout->blocks_per_pass;
  if (layout->num_blocks > INT32_MAX || layout->blocks_per_pass < 1) return false;
  layout->passes = static_cast<int32_t>(passes);

  layout->chunk_steps = layout->steps;
  layout->num_chunks = 1;
  layout->units_w = ceil_div(w.positions, kMmaPositions * instance.position_tiles);
  layout->position_units = plan.tile_h * layout->units_w;
  const int64_t units = int64_t{layout->position_units} * layout->column_units;
  if (units > 4096 || units * units * tiles > INT32_MAX) return false;  // for the divisors
  layout->units = static_cast<int32_t>(units);
  // Barriers count to two, and slots become free in the order of their tiles: a warp that has waited for one tile's
  // slot must not be two rounds of it ahead when it waits for the next one.
  if (plan.warps > units * plan.slots) return false;
  bool vectors =
      w.in % 4 == 0 && problem.x_stride[0] % 4 == 0 && problem.x_stride[1] % 4 == 0 && problem.x_stride[2] % 4 == 0;
  for (int32_t tap = 0; tap < w.num_taps; ++layout->runs_w) {
    vectors = vectors && w.offset[tap] % 4 == 0;
    tap += mma_run(w, layout->runs_w).taps;
  }
  layout->vector = vectors ? 4 : 1;
  layout->groups_of_steps = h.num_taps * layout->steps * layout->runs_w;

  // A staged channel is what memory has of it, and begins in a sector as it does there: bulk copies between places that
  // are not congruent modulo 32 bytes take half as long again.
  const int64_t row_step = int64_t{h.out_stride} * w.out;
  const double last_step = layout->steps * (32.0 / element) * std::abs(static_cast<double>(problem.x_stride[1])) +
                           (h.greatest_offset - h.least_offset) * std::abs(static_cast<double>(problem.x_stride[2])) +
                           w.in;
  constexpr int64_t kMostElements = 1 << 18;
  if (plan.tile_h * row_step > kMostElements || last_step > INT32_MAX) return false;
  layout->row_step = static_cast<int32_t>(row_step);
  layout->result_vector = sector;
  const int64_t channel_stride = problem.c_out > 1 ? y_stride[1] : 0;
  layout->stage_channel =
      round_up(plan.tile_h * layout->row_step, sector) + modulo(channel_stride, sector) + plan.padding * sector;
  layout->slots = plan.slots;
  const int64_t slot = int64_t{plan.block_co} * layout->stage_channel + sector;
  const int64_t weights = int64_t{layout->taps} * layout->steps * layout->column_tiles * 512;
  // While the weights are loaded, what the columns are takes the staged results' place.
  const int64_t list = int64_t{4} * (layout->taps + 2) * layout->column_tiles * kMmaColumns;
  constexpr int64_t kMostBytes = 1 << 18;  // more than any GPU has
  if (slot * plan.slots * element + weights + list > kMostBytes) return false;
  layout->slot_elements = round_up(static_cast<int32_t>(slot), sector);
  layout->weight_begin =
      round_up(std::max(layout->slot_elements * plan.slots * element, static_cast<int32_t>(list)), 16);
  layout->column_begin_bytes = layout->weight_begin + static_cast<int32_t>(weights);
  layout->step_begin = layout->column_begin_bytes + layout->column_tiles * kMmaColumns * 16;
  layout->group_begin = layout->step_begin + round_up(8 * layout->taps * layout->steps * layout->column_units, 16);
  layout->barriers_begin = layout->group_begin + 16 * layout->groups_of_steps;
  layout->shared_bytes = layout->barriers_begin + 16 * plan.slots;

  layout->by_tiles_w = Reciprocal::of(1);
  layout->by_tiles_h = Reciprocal::of(layout->tiles_h);
  layout->by_column_tiles = Reciprocal::of(layout->column_tiles);
  layout->by_chunk_steps = Reciprocal::of(layout->chunk_steps);
  layout->by_taps = Reciprocal::of(layout->taps);
  layout->by_units = Reciprocal::of(layout->units);
  layout->by_unit_columns = Reciprocal::of(layout->column_units);
  layout->by_units_w = Reciprocal::of(layout->units_w);
  layout->by_slots = Reciprocal::of(plan.slots);
  return true;
}

}  // namespace convt
