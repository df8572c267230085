// Layouts of the scatter engine, its candidates and their estimated times.
#include "plan/plan.h"

#include <algorithm>
#include <numeric>

#include "plan/cost.h"
#include "plan/shared_memory.h"
#include "plan/tensor_map.h"
#include "scatter_sm90a/instances.h"
#include "scatter_sm90a/layout.h"

namespace convt {
namespace {

// Tiles own whole positions along W. A tile's source columns begin `reach_w` before its first position, except in the
// first tile, which needs no columns before the image.
bool lay_out_columns(const ConvTProblem& problem, bool channels_last, ScatterLayout* layout) {
  const Axis& w = problem.w;
  const int32_t width = kScatterPositions / layout->strips;
  layout->first_column = w.padding / w.stride;
  layout->end_column = (w.out - 1 + w.padding) / w.stride + 1;
  layout->reach_w = (w.kernel - 1) * w.dilation / w.stride;
  const int32_t unit = channels_last ? 1 : 2;  // columns per load
  layout->advance_w = (width - layout->reach_w) / unit * unit;
  if (layout->advance_w <= 0) return false;
  layout->begin_w = std::max(0, layout->first_column - layout->reach_w) / unit * unit;
  const int32_t last = std::min(w.in, layout->end_column) - layout->begin_w - width;
  const int32_t tiles = last <= 0 ? 1 : 1 + ceil_div(last, layout->advance_w);
  if (layout->strips > 1 && tiles > 1) return false;
  layout->column_tiles = FastDivmod::of(tiles);
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
  if (h.kernel > 1 && h.dilation != 1) return false;  // a slot must contain one tap row per phase
  const int64_t slot_columns = std::min(h.kernel, h.stride) * problem.c_out * w.kernel;
  if (ceil_div(h.kernel, h.stride) > instance.slots || slot_columns > instance.columns) return false;
  // Bounds all sizes in shared memory, and with them the values below.
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
  // Eight more columns: room for a first column that is not aligned to 16 bytes, and against bank conflicts of
  // channels.
  layout->pitch = instance.channels_last ? width : width + 8;
  if (!lay_out_columns(problem, instance.channels_last, layout)) return false;

  layout->first_row = h.padding / h.stride;
  layout->end_row = (h.out - 1 + h.padding) / h.stride + 1;
  layout->tile_rows = plan.tile_rows;
  layout->row_tiles = FastDivmod::of(ceil_div(layout->end_row - layout->first_row, plan.tile_rows));
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
  layout->by_taps = FastDivmod::of(taps);
  layout->by_kernel_h = FastDivmod::of(h.kernel);
  layout->by_kernel_w = FastDivmod::of(w.kernel);
  layout->by_stride_h = FastDivmod::of(h.stride);
  layout->by_stride_w = FastDivmod::of(w.stride);
  layout->by_channels = FastDivmod::of(layout->c_out);

  layout->stages = plan.stages;
  layout->stage_bytes = round_up(plan.strips * layout->chunk_channels * layout->pitch * element, 128);
  const int64_t terms = is_split(instance) ? 2 : 1;
  const int64_t weights = terms * layout->steps * 32 * instance.slots * instance.columns;
  layout->num_planes = h.stride * layout->c_out;
  layout->staged_bytes = layout->slot_columns * kScatterPlane * 4;
  SharedMemory smem;
  smem.take(int64_t{plan.stages} * layout->stage_bytes);
  layout->weights_begin = smem.take(weights);
  layout->staged_begin = smem.take(2 * layout->staged_bytes);
  layout->unit_begin = smem.take(16 * layout->num_units);
  layout->plane_begin = smem.take(16 * layout->num_planes);
  layout->barriers_begin = smem.take(16 * (plan.stages + 2));
  layout->shared_bytes = smem.bytes();
  return smem.fits();
}

namespace {

// Whether tensor maps can describe source rows (pixels in channels_last), and columns (channels in channels_last) of
// the result are contiguous.
bool serves(const ConvTProblem& problem, bool channels_last) {
  if (problem.direction != Direction::kForward) return false;
  const int64_t bytes = element_bytes(problem.dtype);
  const int64_t source[4] = {problem.batch, problem.c_in, problem.h.in, problem.w.in};
  const int64_t result[4] = {problem.batch, problem.c_out, problem.h.out, problem.w.out};
  const int innermost = channels_last ? 1 : 3;
  if (source[innermost] > 1 && problem.x_stride[innermost] != 1) return false;
  if (result[innermost] > 1 && problem.y_stride[innermost] != 1) return false;
  for (int axis = 0; axis < 4; ++axis) {
    if (axis != innermost && !has_map_stride(source[axis], problem.x_stride[axis], bytes)) return false;
  }
  return true;
}

// Times in microseconds: a launch with the first weights, more weights, the longer of memory and a CTA's source rows,
// and a part of the shorter. Constants are fitted to measurements of twelve layers on an H200.
void estimate(const ConvTProblem& problem, const DeviceInfo& device, const ScatterLayout& layout, Plan* plan) {
  const double bytes = static_cast<double>(element_bytes(problem.dtype));
  const double input = bytes * input_elements(problem);
  const double output = bytes * output_elements(problem);
  plan->memory_us = (input + output) / (device.copy_gb_per_s * 1e3);
  const bool half = problem.dtype != DataType::kFloat32;
  const double tiles = static_cast<double>(ceil_div(int64_t{layout.num_tiles}, plan->num_blocks));
  const ScatterInstance& instance = kScatterInstances[tile_of<ScatterTile>(*plan).instance];
  // In channels_last a unit belongs to one channel.
  const int32_t planes = instance.channels_last ? problem.h.stride : layout.num_planes;
  const double stores = ceil_div(layout.num_units, 128) * ceil_div(planes, 3) * ceil_div(layout.terms, 3);
  const double alone = plan->num_blocks > device.num_sms ? 1 : 0.75;
  const bool split = instance.precision == Precision::kTf32x3;
  const double step = half ? 0.07 : split ? 0.08 + 0.00125 * instance.slots * instance.columns : 0.04;
  const double row = alone * std::max({half ? 0.75 : 0.6, step * layout.steps, 0.2 * stores});
  plan->compute_us = tiles * (layout.tile_rows + layout.slots - 1) * row * 1.89 / device.clock_ghz;
  const double weights = 1.7 * (ceil_div(layout.weight_units, layout.weight_threads) - 1);
  const double memory = (instance.channels_last ? 1.25 : 1.6) * plan->memory_us;
  plan->estimate_us = 6.4 + weights + std::max(plan->compute_us, memory) + 0.35 * std::min(plan->compute_us, memory);
}

// Steps per stage: all channels, or as many as a box permits, divided into `more` additional pieces.
int32_t chunk_of(const ConvTProblem& problem, bool channels_last, int32_t strips, int32_t more) {
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  if (channels_last) return kScatterRowBytes / 32;
  const int32_t most = 256 / (32 / element);
  const int64_t steps = ceil_div(problem.c_in, int64_t{32 / element});
  const int64_t pieces = more + ceil_div(steps, int64_t{std::min(most, 16 / strips)});
  return static_cast<int32_t>(ceil_div(steps, pieces * kScatterBatch)) * kScatterBatch;
}

// As many stages as are useful and fit. More copies in flight gained nothing.
int32_t stages_of(const ScatterLayout& layout, bool channels_last, int32_t resident, int32_t room) {
  constexpr int32_t kManyBytes = 12 * 1024;
  const int32_t most = channels_last ? 6 / resident : layout.stage_bytes < kManyBytes ? 3 : 2;
  return std::min(most, 2 + (room - layout.shared_bytes) / (layout.stage_bytes + 16));
}

void add_tiles(const ConvTProblem& problem, const DeviceInfo& device, int32_t index, int32_t strips, int32_t resident,
               std::vector<Plan>* plans) {
  const ScatterInstance& instance = kScatterInstances[index];
  const int32_t room = shared_room(device, resident);
  Plan plan = begin_plan(instance.name, problem.precision, ScatterTile{});
  ScatterLayout layout;
  bool fits = false;
  for (int32_t more = 0; more < 3 && !fits; ++more) {
    plan.tile = ScatterTile{index, strips, 1 << 29, chunk_of(problem, instance.channels_last, strips, more), 2};
    if (!make_scatter_layout(problem, tile_of<ScatterTile>(plan), &layout)) return;
    fits = layout.shared_bytes <= room;
  }
  if (!fits) return;
  tile_of<ScatterTile>(plan).stages = stages_of(layout, instance.channels_last, resident, room);
  // One tile per CTA, or two.
  const int64_t blocks = int64_t{resident} * device.num_sms, columns = layout.num_tiles;
  const int32_t rows = layout.end_row - layout.first_row;
  for (int32_t tiles = 1; tiles <= 2; ++tiles) {
    const int64_t shares = std::max<int64_t>(1, tiles * blocks / columns);
    tile_of<ScatterTile>(plan).tile_rows = static_cast<int32_t>(ceil_div(int64_t{rows}, shares));
    if (!make_scatter_layout(problem, tile_of<ScatterTile>(plan), &layout)) continue;
    plan.source_on_vectors = true;
    plan.threads = scatter_threads(is_split(instance));
    plan.shared_bytes = layout.shared_bytes;
    plan.num_blocks = std::min<int64_t>(layout.num_tiles, blocks);
    estimate(problem, device, layout, &plan);
    plans->push_back(plan);
  }
}

}  // namespace

void add_scatter_plans(const ConvTProblem& problem, const DeviceInfo& device, Candidates* plans) {
  for (const bool channels_last : {false, true}) {
    if (!serves(problem, channels_last)) continue;
    const size_t before = plans->size();
    // Only the smallest instance that fits. A larger instance computes unused columns.
    for (int32_t index = 0; index < kNumScatterInstances && plans->size() == before; ++index) {
      const ScatterInstance& instance = kScatterInstances[index];
      if (instance.dtype != problem.dtype || instance.precision != problem.precision ||
          instance.channels_last != channels_last) {
        continue;
      }
      for (int32_t strips = 1; strips <= 4; strips *= 2) {
        if (strips > 1 && (problem.w.in > kScatterPositions / strips || problem.batch < strips)) continue;
        for (int32_t resident = 1; resident <= 2; ++resident) {
          add_tiles(problem, device, index, strips, resident, plans);
        }
      }
    }
  }
}

}  // namespace convt
