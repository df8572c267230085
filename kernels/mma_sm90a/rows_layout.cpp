// Layout of the mma_rows family.
#include "mma_sm90a/rows_layout.h"

#include <algorithm>
#include <cmath>

#include "plan/shared_memory.h"
#include "problem/shapes.h"

namespace convt {
namespace {

// Groups the phases with taps into classes. Returns the number of classes, or -1 if the table is too small.
int32_t make_classes(const PhaseAxis& axis, MmaClass* classes) {
  int32_t count = 0;
  for (int32_t phase = 0; phase < axis.out_stride; ++phase) {
    uint32_t taps = 0;
    for (int32_t t = 0; t < axis.num_taps; ++t) taps |= weight_tap(axis, t, phase) >= 0 ? 1u << t : 0;
    if (taps == 0) continue;
    int32_t number = 0;
    while (number < count && classes[number].taps != taps) ++number;
    if (number == kMaxMmaClasses) return -1;
    if (number == count) classes[count++] = MmaClass{0, taps};
    classes[number].phases |= 1u << phase;
  }
  return count;
}

// Sets the fields that depend only on the problem.
bool begin_layout(const ConvTProblem& problem, MmaRowsLayout* layout) {
  *layout = MmaRowsLayout{};
  if (problem.direction != Direction::kForward || problem.y_stride[3] != 1) return false;
  if (!make_phase_axis(problem.h, &layout->h) || !make_phase_axis(problem.w, &layout->w)) return false;
  if (!make_channel_groups(problem, layout) || weight_reach(problem) > INT32_MAX) return false;
  layout->classes_h = make_classes(layout->h, layout->class_h);
  layout->classes_w = make_classes(layout->w, layout->class_w);
  layout->taps = layout->h.num_taps * layout->w.num_taps;
  layout->steps = ceil_div(layout->group_ci, 32 / static_cast<int32_t>(element_bytes(problem.dtype)));
  return layout->classes_h >= 0 && layout->classes_w >= 0;
}

// Sets the columns of a pass.
void make_columns(int32_t block_co, const MmaInstance& instance, MmaRowsLayout* layout) {
  layout->block_co = block_co;
  layout->co_tiles = ceil_div(layout->group_co, block_co);
  for (int32_t i = 0; i < layout->classes_h; ++i) {
    for (int32_t j = 0; j < layout->classes_w; ++j) {
      const int32_t phases = count_ones(layout->class_h[i].phases) * count_ones(layout->class_w[j].phases);
      layout->column_tiles += ceil_div(block_co * phases, kMmaColumns);
    }
  }
  layout->column_units = ceil_div(layout->column_tiles, instance.column_tiles);
  layout->column_tiles = layout->column_units * instance.column_tiles;
}

}  // namespace

bool make_mma_rows_layout(const ConvTProblem& problem, const MmaRowsTile& plan, MmaRowsLayout* layout) {
  const MmaInstance& instance = kMmaRowsInstances[plan.instance];
  const int64_t* y_stride = problem.y_stride;
  if (problem.x_stride[3] != 1 || !begin_layout(problem, layout)) return false;
  make_columns(plan.block_co, instance, layout);
  const PhaseAxis& h = layout->h;
  PhaseAxis& w = layout->w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t sector = 32 / element;
  // A tile's rows of a channel must be contiguous, and each row must contain a whole sector.
  if (y_stride[2] != w.out || w.out < 2 * sector) return false;

  layout->warps = plan.warps + kMmaRowsStorers;
  layout->threads = 32 * layout->warps;
  // Units start at multiples of four columns.
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

  layout->units_w = ceil_div(w.positions, kMmaPositions * instance.position_tiles);
  layout->position_units = plan.tile_h * layout->units_w;
  const int64_t units = int64_t{layout->position_units} * layout->column_units;
  if (units > 4096 || units * units * tiles > INT32_MAX) return false;  // for the divisors
  layout->units = static_cast<int32_t>(units);
  // Barrier parity distinguishes two phases, and slots are released in the order of their tiles. Between two waits, a
  // warp must therefore not advance by two rounds of the slots.
  if (plan.warps > units * plan.slots) return false;
  bool vectors =
      w.in % 4 == 0 && problem.x_stride[0] % 4 == 0 && problem.x_stride[1] % 4 == 0 && problem.x_stride[2] % 4 == 0;
  for (int32_t tap = 0; tap < w.num_taps; ++layout->runs_w) {
    vectors = vectors && w.offset[tap] % 4 == 0;
    tap += mma_run(w, layout->runs_w).taps;
  }
  layout->vector = vectors ? 4 : 1;
  layout->groups_of_steps = h.num_taps * layout->steps * layout->runs_w;

  // A channel in shared memory has the same contents and the same offset in a sector as in global memory. Bulk copies
  // between addresses that are not congruent modulo 32 bytes take 1.5 times as long.
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
  const int64_t slot = round_up(int64_t{plan.block_co} * layout->stage_channel + sector, sector);
  const int64_t weights = int64_t{layout->taps} * layout->steps * layout->column_tiles * 512;
  // While weights are loaded, the list of columns uses the memory of the slots.
  const int64_t list = int64_t{4} * (layout->taps + 2) * layout->column_tiles * kMmaColumns;
  SharedMemory smem;
  smem.take(std::max(slot * plan.slots * element, list));
  layout->weight_begin = smem.take(weights, 16);
  layout->column_begin_bytes = smem.take(layout->column_tiles * kMmaColumns * 16);
  layout->step_begin = smem.take(int64_t{8} * layout->taps * layout->steps * layout->column_units);
  layout->group_begin = smem.take(16 * layout->groups_of_steps, 16);
  layout->barriers_begin = smem.take(16 * plan.slots);
  if (!smem.fits()) return false;
  layout->slot_elements = static_cast<int32_t>(slot);
  layout->shared_bytes = smem.bytes();

  layout->by_tiles_w = SmallDivmod::of(1);
  layout->by_tiles_h = SmallDivmod::of(layout->tiles_h);
  layout->by_column_tiles = SmallDivmod::of(layout->column_tiles);
  layout->by_steps = SmallDivmod::of(layout->steps);
  layout->by_units = SmallDivmod::of(layout->units);
  layout->by_unit_columns = SmallDivmod::of(layout->column_units);
  layout->by_units_w = SmallDivmod::of(layout->units_w);
  layout->by_slots = SmallDivmod::of(plan.slots);
  return true;
}

}  // namespace convt
