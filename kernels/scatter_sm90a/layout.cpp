#include "scatter_sm90a/layout.h"

#include <algorithm>
#include <numeric>

#include "scatter_sm90a/instances.h"

namespace convt {
namespace {

int32_t round_up(int64_t value, int32_t multiple) {
  return static_cast<int32_t>((value + multiple - 1) / multiple * multiple);
}

// Columns: tiles own whole positions. Every tile's source columns begin `reach_w` before its first position, but the
// first's, before which the image has none that it needs.
bool lay_out_columns(const ConvTProblem& problem, bool channels_last, ScatterLayout* layout) {
  const Axis& w = problem.w;
  const int32_t width = kScatterPositions / layout->strips;
  layout->first_column = w.padding / w.stride;
  layout->end_column = (w.out - 1 + w.padding) / w.stride + 1;
  layout->reach_w = (w.kernel - 1) * w.dilation / w.stride;
  const int32_t unit = channels_last ? 1 : 2;  // columns of a read
  layout->advance_w = (width - layout->reach_w) / unit * unit;
  if (layout->advance_w <= 0) return false;
  layout->begin_w = std::max(0, layout->first_column - layout->reach_w) / unit * unit;
  const int32_t last = std::min(w.in, layout->end_column) - layout->begin_w - width;
  const int32_t tiles = last <= 0 ? 1 : 1 + ceil_div(last, layout->advance_w);
  if (layout->strips > 1 && tiles > 1) return false;
  layout->column_tiles = Divisor::of(tiles);
  const auto first_of = [&](int32_t tile) {
    if (tile == 0) return layout->first_column;
    if (tile == tiles) return layout->end_column;
    return layout->begin_w + tile * layout->advance_w + layout->reach_w;
  };
  int64_t most = 0;
  for (const int32_t tile : {0, std::min(1, tiles - 1), tiles - 1}) {
    const int64_t begin = std::max<int64_t>(int64_t{first_of(tile)} * w.stride, w.padding);
    most = std::max(most, std::min<int64_t>(int64_t{first_of(tile + 1)} * w.stride, w.padding + w.out) - begin);
  }
  constexpr int64_t kMostUnits = 1024;
  if (channels_last) most *= problem.c_out;
  if (most > kMostUnits) return false;
  layout->num_units = layout->strips * static_cast<int32_t>(most);

  const int32_t common = std::gcd(w.stride, w.dilation);
  layout->term_kw = w.stride / common;
  layout->terms = ceil_div(w.kernel, layout->term_kw);
  layout->term_source = w.dilation / common;
  layout->term_step = 4 * (layout->term_kw * kScatterPlane - layout->term_source);
  layout->residue_step = w.dilation % w.stride;
  return layout->terms <= kScatterMostTerms;
}

}  // namespace

bool make_scatter_layout(const ConvTProblem& problem, const ScatterTile& plan, ScatterLayout* layout) {
  const ScatterInstance& instance = kScatterInstances[plan.instance];
  const Axis &h = problem.h, &w = problem.w;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  constexpr int64_t kLimit = int64_t{1} << 20;
  if (problem.groups != 1 || problem.batch > kLimit || problem.c_in > kLimit) return false;
  if (h.kernel > 1 && h.dilation != 1) return false;  // a slot's columns must be those of one tap row for each phase
  const int64_t slot_columns = std::min(h.kernel, h.stride) * problem.c_out * w.kernel;
  if (ceil_div(h.kernel, h.stride) > instance.slots || slot_columns > instance.columns) return false;
  // Bounds sizes in shared memory, and with them everything below.
  if (h.stride * problem.c_out > 256 || w.stride > 64 || int64_t{w.kernel - 1} * w.dilation >= 64 * w.stride) {
    return false;
  }
  *layout = ScatterLayout{};
  layout->batch = static_cast<int32_t>(problem.batch);
  layout->c_in = static_cast<int32_t>(problem.c_in);
  layout->c_out = static_cast<int32_t>(problem.c_out);
  layout->kernel_h = h.kernel;
  layout->kernel_w = w.kernel;
  layout->h = h;
  layout->w = w;
  layout->slots = ceil_div(h.kernel, h.stride);
  layout->slot_columns = static_cast<int32_t>(slot_columns);
  layout->strips = plan.strips;
  const int32_t width = kScatterPositions / plan.strips;
  while (1 << layout->strip_log2 < width) ++layout->strip_log2;
  // Eight columns more: room for a first column that is no multiple of 16 bytes, and channels in different banks.
  layout->pitch = instance.channels_last ? width : width + 8;
  if (!lay_out_columns(problem, instance.channels_last, layout)) return false;

  layout->first_row = h.padding / h.stride;
  layout->end_row = (h.out - 1 + h.padding) / h.stride + 1;
  layout->tile_rows = plan.tile_rows;
  layout->row_tiles = Divisor::of(ceil_div(layout->end_row - layout->first_row, plan.tile_rows));
  const int64_t tiles =
      ceil_div(problem.batch, int64_t{plan.strips}) * layout->row_tiles.value * layout->column_tiles.value;
  if (tiles > 1 << 30) return false;
  layout->num_tiles = static_cast<int32_t>(tiles);

  const int32_t step_channels = 32 / element;
  layout->chunk_steps = plan.chunk_steps;
  layout->chunk_channels = plan.chunk_steps * step_channels;
  layout->num_chunks = ceil_div(layout->c_in, layout->chunk_channels);
  layout->steps = layout->num_chunks * layout->chunk_steps;
  const bool whole = layout->num_chunks == 1 && plan.strips == 1 && !instance.channels_last;
  layout->box_channels = whole ? layout->c_in : layout->chunk_channels;
  constexpr int32_t kMostBox = 256;
  if (plan.chunk_steps % kScatterBatch != 0 || layout->chunk_channels > kMostBox) return false;
  if (instance.channels_last && plan.chunk_steps * 32 != kScatterRowBytes) return false;
  const int32_t taps = h.kernel * w.kernel * layout->c_out;
  for (const int32_t threads : {kScatterConsumerThreads, scatter_work_threads(is_split(instance))}) {
    const int32_t shares = std::max(1, threads / taps);
    layout->weight_threads = threads;
    layout->weight_batch = std::min(round_up(ceil_div(layout->c_in, shares), 16 / element), kScatterMostWeights);
    layout->weight_units = taps * ceil_div(layout->c_in, layout->weight_batch);
    if (layout->weight_units <= threads) break;
  }
  layout->by_taps = Divisor::of(taps);
  layout->by_kernel_h = Divisor::of(h.kernel);
  layout->by_kernel_w = Divisor::of(w.kernel);
  layout->by_stride_h = Divisor::of(h.stride);
  layout->by_stride_w = Divisor::of(w.stride);
  layout->by_channels = Divisor::of(layout->c_out);

  layout->stages = plan.stages;
  layout->stage_bytes = round_up(int64_t{plan.strips} * layout->chunk_channels * layout->pitch * element, 128);
  const int64_t parts = is_split(instance) ? 2 : 1;
  const int64_t weights = parts * layout->steps * 32 * instance.slots * instance.columns;
  constexpr int64_t kMostBytes = 1 << 20;
  if (int64_t{plan.stages} * layout->stage_bytes + weights > kMostBytes) return false;
  layout->num_planes = h.stride * layout->c_out;
  layout->weights_begin = plan.stages * layout->stage_bytes;
  layout->staged_begin = layout->weights_begin + static_cast<int32_t>(weights);
  layout->staged_bytes = layout->slot_columns * kScatterPlane * 4;
  layout->unit_begin = layout->staged_begin + 2 * layout->staged_bytes;
  layout->plane_begin = layout->unit_begin + 16 * layout->num_units;
  layout->barriers_begin = layout->plane_begin + 16 * layout->num_planes;
  layout->shared_bytes = layout->barriers_begin + 16 * (plan.stages + 2);
  return true;
}

}  // namespace convt
