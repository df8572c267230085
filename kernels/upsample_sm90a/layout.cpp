#include "upsample_sm90a/layout.h"

#include <algorithm>

namespace convt {

bool make_upsample_layout(const ConvTProblem& problem, const UpsampleTile& plan, UpsampleLayout* layout) {
  const Axis &h = problem.h, &w = problem.w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  constexpr int64_t kLimit = int64_t{1} << 20;
  if (problem.groups != 1 || problem.batch > kLimit || problem.c_in > kUpsampleChannels || problem.c_out > 256) {
    return false;
  }
  if (w.dilation != 1 || w.stride % 8 != 0 || w.kernel != 2 * w.stride || w.padding % 4 != 0) return false;
  if ((h.kernel > 1 && h.dilation != 1) || h.kernel > 2 * h.stride || h.stride > 256 || w.stride > 256) return false;
  if (plan.tile_rows < 1 || plan.slots < kUpsampleLeastSlots) return false;
  *layout = UpsampleLayout{};
  layout->batch = static_cast<int32_t>(problem.batch);
  layout->c_in = static_cast<int32_t>(problem.c_in);
  layout->c_out = static_cast<int32_t>(problem.c_out);
  layout->h = h;
  layout->w = w;
  layout->octets = Divisor::of(w.stride / 8);
  layout->channel_blocks = Divisor::of(ceil_div(layout->c_out, kUpsampleChannels));
  layout->stride_h = Divisor::of(h.stride);
  layout->num_operands = h.stride * layout->octets.value * layout->channel_blocks.value;

  layout->rows = ceil_div(h.out, h.stride);
  layout->tile_rows = std::min(plan.tile_rows, layout->rows);
  const int64_t row_tiles = ceil_div(layout->rows, layout->tile_rows);
  const int64_t column_tiles = ceil_div(ceil_div(w.out, w.stride), kUpsamplePositions);
  const int64_t tiles = problem.batch * row_tiles * column_tiles;
  if (tiles > 1 << 24) return false;
  layout->row_tiles = Divisor::of(static_cast<int32_t>(row_tiles));
  layout->column_tiles = Divisor::of(static_cast<int32_t>(column_tiles));
  layout->num_tiles = static_cast<int32_t>(tiles);
  layout->shares = std::min(plan.shares, layout->num_tiles);

  layout->pitch = kUpsamplePitch[element / 4];
  layout->slots = Divisor::of(plan.slots);
  layout->slot_bytes = kUpsampleChannels * layout->pitch * element;
  layout->weights_begin = plan.slots * layout->slot_bytes;
  // Two quads, the second 16 bytes further, of two tap rows.
  layout->bias_begin = layout->weights_begin + 4 * kUpsampleSteps[element / 4] * kUpsampleStepBytes + 16;
  layout->barriers_begin = layout->bias_begin + 4 * kUpsampleChannels;
  layout->shared_bytes = layout->barriers_begin + 16 * plan.slots;
  return true;
}

}  // namespace convt
