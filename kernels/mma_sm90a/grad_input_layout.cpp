#include "mma_sm90a/grad_input_layout.h"

#include <algorithm>

#include "mma_sm90a/banks.h"
#include "plan/shared_memory.h"
#include "problem/shapes.h"
#include "tiling/slots.h"

namespace convt {
namespace {

// Sets the rows and channels of a stage. Returns false if they are far too large.
bool lay_out_stage(const MmaGradInputTile& plan, const int64_t (&stride)[4], int32_t element,
                   MmaGradInputLayout* layout) {
  const Axis &h = layout->h, &w = layout->w;
  const int32_t vector = 16 / element;
  const int32_t step = greatest_common_divisor(h.stride, h.dilation);
  const int64_t window = (int64_t{plan.tile_h - 1} * h.stride + int64_t{h.kernel - 1} * h.dilation) / step + 1;
  const int64_t apart = int64_t{plan.tile_h} * h.kernel;
  const int64_t columns = int64_t{plan.tile_w - 1} * w.stride + int64_t{w.kernel - 1} * w.dilation + 1;
  constexpr int64_t kMostSlots = 1 << 10, kMostColumns = 1 << 14;
  layout->column_pitch = layout->interleaved ? static_cast<int32_t>(std::min(stride[3], kMostColumns)) : 1;
  const int64_t row = (columns - 1) * layout->column_pitch + (layout->interleaved ? plan.chunk_co : 1);
  const int64_t image_row = int64_t{w.out} * layout->column_pitch;
  constexpr int64_t kMostRows = 1 << 28;  // rows of grad_output per stage, for 32-bit indices
  if (int64_t{plan.tile_h} * h.stride > kMostRows) return false;
  if (std::min(window, apart) > kMostSlots || row > kMostColumns) return false;
  layout->apart = apart < window;
  layout->slots = static_cast<int32_t>(layout->apart ? apart : window);
  layout->slot_q = layout->apart ? h.kernel : h.stride / step;
  layout->slot_k = layout->apart ? 1 : h.dilation / step;
  layout->row_step = step;
  layout->columns = static_cast<int32_t>(columns);
  layout->joined = !layout->apart && step == 1 && layout->tiles_w == 1 && stride[2] == image_row;
  // A row may begin and end within a vector. Padding vectors follow each row or channel, against bank conflicts.
  const int32_t padding = plan.padding * vector;
  const int64_t least = row + 2 * (vector - 1) + (layout->interleaved ? padding : 0);
  constexpr int64_t kMostElements = 1 << 20;
  const int64_t row_rest = stride[2] % vector;  // determines the residues of all pitches
  if (layout->apart) {
    layout->slot_pitch = congruent_from(least, h.dilation * row_rest, vector);
    layout->tap_pitch = layout->slot_pitch;
    layout->position_pitch = congruent_from(int64_t{h.kernel} * layout->slot_pitch, h.stride * row_rest, vector);
  } else {
    const int64_t slot_pitch = layout->joined ? image_row : congruent_from(least, step * row_rest, vector);
    // slot_q or slot_k may be arbitrarily large if there is only one row of positions or taps.
    if (slot_pitch * std::max({1, layout->slot_k, layout->slot_q}) > 16 * kMostElements) return false;
    layout->slot_pitch = static_cast<int32_t>(slot_pitch);
    layout->tap_pitch = layout->slot_k * layout->slot_pitch;
    layout->position_pitch = layout->slot_q * layout->slot_pitch;
  }
  // Columns past the end of the last row are read too, and then masked to zero.
  const int64_t rows = layout->apart ? int64_t{plan.tile_h} * layout->position_pitch
                                     : int64_t{layout->slots} * layout->slot_pitch + (layout->joined ? least : 0);
  if (rows * (layout->interleaved ? 1 : plan.chunk_co) > kMostElements) return false;
  auto elements = static_cast<int32_t>(rows);
  layout->channel_pitch = 1;
  if (!layout->interleaved) {
    layout->channel_pitch = congruent_from(rows, stride[1], vector) + padding;
    elements = plan.chunk_co * layout->channel_pitch;
  }
  layout->stage_bytes = round_up((elements + 2 * vector) * element, 128);
  return true;
}

}  // namespace

bool share_tiles(int32_t blocks, MmaGradInputLayout* layout) {
  layout->num_blocks = int64_t{layout->groups} * blocks;
  layout->tiles_per_block = layout->num_tiles / blocks;
  layout->longer_blocks = layout->num_tiles % blocks;
  return layout->num_blocks < int64_t{1} << 31;
}

bool make_mma_grad_input_layout(const ConvTProblem& problem, const MmaGradInputTile& plan, MmaGradInputLayout* layout) {
  *layout = MmaGradInputLayout{};
  const MmaGradInputInstance& instance = kMmaGradInputInstances[plan.instance];
  if (problem.direction != Direction::kGradInput) return false;
  layout->interleaved = problem.y_stride[3] != 1;
  layout->result_channels_last = problem.x_stride[3] != 1;
  if (layout->interleaved && (problem.y_stride[1] != 1 || problem.y_stride[3] < 1)) return false;
  if (layout->result_channels_last && problem.x_stride[1] != 1) return false;
  const Axis &h = problem.h, &w = problem.w;
  if (h.kernel > kMaxMmaGradientTaps || w.kernel > kMaxMmaGradientTaps) return false;
  if (!make_channel_groups(problem, layout)) return false;
  layout->h = h;
  layout->w = w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  const int32_t step_elements = 32 / element, lane_elements = 8 / element;

  layout->tile_h = plan.tile_h;
  layout->tile_w = plan.tile_w;
  layout->tiles_h = ceil_div(h.in, plan.tile_h);
  layout->tiles_w = ceil_div(w.in, plan.tile_w);
  layout->positions = plan.tile_h * plan.tile_w;
  const int64_t tiles = problem.batch * layout->tiles_h * layout->tiles_w;
  constexpr int64_t kMost = int64_t{1} << 31;
  if (tiles >= kMost || tiles * std::max(layout->tiles_h, layout->tiles_w) >= kMost || plan.blocks_per_group < 1) {
    return false;
  }
  layout->num_tiles = static_cast<int32_t>(tiles);
  if (!share_tiles(std::min(plan.blocks_per_group, layout->num_tiles), layout)) return false;
  layout->channel_units = ceil_div(layout->group_ci, kMmaColumns * instance.row_tiles);
  layout->row_tiles = layout->channel_units * instance.row_tiles;
  layout->position_units = ceil_div(layout->positions, kMmaPositions * instance.position_tiles);
  layout->warps = plan.warps;
  layout->splits = plan.splits;
  // A warp issues copies one by one, so several producer warps share them if this does not lower occupancy.
  const int32_t most_warps =
      max_mma_gradient_threads(instance.row_tiles, instance.position_tiles, is_split(instance.precision)) / 32;
  if (plan.warps + 1 > most_warps || plan.warps % plan.splits != 0) return false;
  constexpr int32_t kMostLoaders = 4;
  layout->loaders = std::min(kMostLoaders, most_warps / (most_warps / (plan.warps + 1)) - plan.warps);
  layout->threads = 32 * (plan.warps + layout->loaders);

  layout->chunk_co = plan.chunk_co;
  layout->num_chunks = layout->group_co / plan.chunk_co;
  layout->stages = plan.stages;
  if (layout->group_co % plan.chunk_co != 0) return false;
  // With several stages per tile, or split-K, a warp keeps the accumulators of a single unit in registers.
  const int64_t units = int64_t{layout->channel_units} * layout->position_units;
  if ((layout->num_chunks > 1 || plan.splits > 1) && units > plan.warps / plan.splits) return false;
  layout->depth = plan.chunk_co * h.kernel * w.kernel;
  layout->steps = ceil_div(layout->depth, step_elements);
  // The highest bit of a mask is either the last tap or kNoTap.
  if (h.kernel == kMaxMmaGradientTaps && layout->depth % step_elements != 0) return false;
  layout->order = plan.order;
  if (plan.order > 0 && plan.chunk_co % plan.order != 0) return false;
  if (!lay_out_stage(plan, problem.y_stride, element, layout)) return false;

  const int64_t weights = int64_t{layout->num_chunks} * layout->steps * layout->row_tiles * 512;
  const int64_t table = int64_t{layout->steps} * 4 * lane_elements * 4;
  const int64_t positions = int64_t{layout->position_units} * instance.position_tiles * kMmaPositions * 8;
  const int64_t accumulators = (plan.splits - 1) * units * instance.row_tiles * instance.position_tiles * 512;
  constexpr int64_t kMostPositions = 1 << 13;  // of an image's rows and columns
  if (weight_reach(problem) > INT32_MAX || int64_t{h.in} + w.in > kMostPositions) return false;
  SharedMemory smem;
  smem.take(int64_t{layout->stage_bytes} * plan.stages);
  layout->weight_begin = smem.take(weights);
  layout->offset_begin = smem.take(table);
  layout->mask_begin = smem.take(table);
  layout->place_begin = smem.take(table);
  layout->position_begin = smem.take(positions);
  layout->outside_begin = smem.take(4 * (h.in + w.in));
  layout->accumulators_begin = smem.take(accumulators, 16);
  layout->barrier_begin = smem.take(16 * (plan.stages + 1));
  layout->shared_bytes = smem.bytes();
  if (!smem.fits()) return false;
  // raw_weights requires that all weights of the group are contiguous.
  const int64_t row = int64_t{layout->num_chunks} * layout->depth;
  const int64_t last = int64_t{layout->group_co - 1} * problem.w_stride[1] + (h.kernel - 1) * problem.w_stride[2] +
                       (w.kernel - 1) * problem.w_stride[3];
  if (plan.stages > 1 && problem.w_stride[0] == row && last == row - 1 && layout->group_ci * row * element % 16 == 0) {
    // One copy per channel, with a pitch that avoids bank conflicts; or one copy for all channels.
    const bool whole = row * element % 16 == 0;
    layout->raw_pitch = whole ? congruent_from(row, 16 / element, 128 / element) : static_cast<int32_t>(row);
    layout->raw_bytes = static_cast<int32_t>(row * element);
    layout->raw_weights = layout->group_ci * layout->raw_pitch * element <= layout->stage_bytes;
  }

  if (layout->result_channels_last) {
    // Contiguous channels of a lane: 16 bytes, or all of its rows.
    const int32_t rows = std::min(2 * instance.row_tiles, 16 / element);
    layout->wide = layout->group_ci % rows == 0 && problem.x_stride[0] % rows == 0 && problem.x_stride[2] % rows == 0 &&
                   problem.x_stride[3] % rows == 0;
  } else {
    const auto divides = [&](int32_t count) {
      return w.in % count == 0 && problem.x_stride[0] % count == 0 && problem.x_stride[1] % count == 0 &&
             problem.x_stride[2] % count == 0;
    };
    layout->run = plan.tile_w % 16 == 0 && (element == 2 || divides(4)) ? 16
                  : plan.tile_w % 8 == 0 && element == 4                ? 8
                                                                        : 0;
    layout->wide = layout->run == 16 ? divides(4) : element == 4 && plan.tile_w % 2 == 0 && divides(2);
  }
  layout->by_tiles_w = SmallDivmod::of(layout->tiles_w);
  layout->by_tiles_h = SmallDivmod::of(layout->tiles_h);
  layout->by_copies = SmallDivmod::of(layout->joined ? 1 : layout->slots);
  layout->by_kernel_h = SmallDivmod::of(h.kernel);
  layout->by_row_tiles = SmallDivmod::of(layout->row_tiles);
  layout->by_steps = SmallDivmod::of(layout->steps);
  layout->by_taps = SmallDivmod::of(h.kernel * w.kernel);
  layout->by_kernel_w = SmallDivmod::of(w.kernel);
  layout->by_chunk_co = SmallDivmod::of(plan.chunk_co);
  layout->by_order_run = SmallDivmod::of(plan.order > 0 ? plan.chunk_co / plan.order : 1);
  layout->by_tile_h = SmallDivmod::of(plan.tile_h);
  layout->by_tile_w = SmallDivmod::of(plan.tile_w);
  return true;
}

double grad_input_conflicts(const MmaGradInputLayout& layout, int32_t element, double fewest) {
  constexpr int32_t kMostReads = 8;
  const int32_t reads = layout.depth / 4, sample = std::min(reads, kMostReads);
  if (sample == 0) return 1;
  int32_t positions[8], wavefronts = sample;  // at least one per read
  for (int32_t i = 0; i < 8; ++i) {
    int32_t row, column;
    grad_input_position(layout, i, &row, &column);
    positions[i] = grad_input_position_place(layout, row, column);
  }
  for (int32_t number = 0; number < sample && wavefronts < fewest * sample; ++number) {
    // A read accesses four elements of K at eight adjacent positions.
    const int32_t first = number * reads / sample * 4;
    BankReads read;
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t place = grad_input_place(layout, grad_input_tap(layout, first + i));
      for (const int32_t position : positions) read.add((place + position) * element / 4);
    }
    wavefronts += read.wavefronts - 1;
  }
  return static_cast<double>(wavefronts) / sample;
}

}  // namespace convt
