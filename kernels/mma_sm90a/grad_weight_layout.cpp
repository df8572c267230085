#include "mma_sm90a/grad_weight_layout.h"

#include <algorithm>
#include <cmath>

#include "mma_sm90a/banks.h"
#include "plan/shared_memory.h"

namespace convt {
namespace {

// near, far, next: in pixels, or if negative a fraction of a strip, a half or a quarter.
struct PixelOrder {
  int32_t near;
  int32_t far;
  int32_t next;
};
constexpr int32_t kHalf = -2, kQuarter = -4;
constexpr PixelOrder kPixelOrders[kMmaGradWeightOrders] = {
    {1, 2, 4}, {kHalf, 1, 2}, {1, kHalf, 2}, {kHalf, kQuarter, 1}, {kQuarter, kHalf, 1}};

void set_pixel_order(const PixelOrder& order, MmaGradWeightLayout* layout) {
  auto pixels_of = [layout](int32_t value) { return value > 0 ? value : layout->strip / -value; };
  layout->near_pixels = pixels_of(order.near);
  layout->far_pixels = pixels_of(order.far);
  layout->next_pixels = order.next;
}

// Columns innermost: the pitches of tiling/strips.h, with padding vectors after each channel.
bool lay_out_channels(const ConvTProblem& problem, const MmaGradWeightTile& plan, MmaGradWeightLayout* layout) {
  const int32_t elems = vector_elements(problem.dtype);
  layout->x_pixel = 1;
  layout->gy_column = 1;
  layout->gy_pixel = problem.w.stride;
  layout->gy_tap_column = problem.w.dilation;
  StripPitches& pitches = layout->pitches;
  pitches = make_strip_pitches(*layout, problem);
  pitches.x_channel += plan.x_padding * elems;
  pitches.gy_channel += plan.gy_padding * elems;
  return lay_out_strip_stages(problem, int64_t{pitches.x_channel} * plan.block_ci,
                              int64_t{pitches.gy_channel} * plan.block_co, layout);
}

// Channels innermost, with padding vectors after each pixel.
bool lay_out_pixels(const ConvTProblem& problem, const MmaGradWeightTile& plan, MmaGradWeightLayout* layout) {
  const int32_t elems = vector_elements(problem.dtype), ends = 2 * (elems - 1);
  constexpr int64_t kMostPixelElems = 1 << 12;
  auto pitch_of = [&](int32_t block, int32_t padding) { return ((block - 1) / elems + 1 + padding) * elems; };
  auto has_runs = [&](int32_t block, int64_t channels, int64_t pixel, int32_t padding) {
    return padding == 0 && block == channels && pixel >= block && pixel <= kMostPixelElems;
  };
  const int32_t rows = layout->tile_units;
  layout->columns_apart = plan.strip * plan.block_kw < layout->columns;
  layout->x_runs = has_runs(plan.block_ci, problem.c_in, problem.x_stride[3], plan.x_padding);
  layout->gy_runs =
      !layout->columns_apart && has_runs(plan.block_co, problem.c_out, problem.y_stride[3], plan.gy_padding);
  layout->x_pixel =
      layout->x_runs ? static_cast<int32_t>(problem.x_stride[3]) : pitch_of(plan.block_ci, plan.x_padding);
  layout->gy_column =
      layout->gy_runs ? static_cast<int32_t>(problem.y_stride[3]) : pitch_of(plan.block_co, plan.gy_padding);
  layout->gy_pixel = layout->gy_column * (layout->columns_apart ? 1 : problem.w.stride);
  const int32_t tap_columns = layout->columns_apart ? plan.strip : problem.w.dilation;
  layout->gy_tap_column = plan.block_kw > 1 ? layout->gy_column * tap_columns : 0;
  const int64_t x_row = int64_t{layout->strip} * layout->x_pixel;
  const int64_t gy_row =
      int64_t{layout->columns_apart ? plan.strip * plan.block_kw : layout->columns} * layout->gy_column;
  constexpr int64_t kMostElems = 1 << 18;  // more than fits on any GPU
  constexpr double kMostDistance = 1 << 28;  // elements in memory between pixels of a row
  const double distance = std::max(static_cast<double>(problem.x_stride[3]) * plan.strip,
                                   static_cast<double>(problem.y_stride[3]) * (layout->columns + problem.w.stride));
  if (distance > kMostDistance) return false;
  if (x_row * rows > kMostElems || gy_row * layout->slots > kMostElems) return false;

  StripPitches& pitches = layout->pitches;
  pitches.x_channel = pitches.gy_channel = 1;
  auto row_pitch = [&](int64_t row, bool runs, int64_t distance) {
    return runs ? congruent_from(static_cast<int32_t>(row) + ends, distance, elems) : static_cast<int32_t>(row);
  };
  const int64_t row = problem.y_stride[2] % elems;
  pitches.x_row = row_pitch(x_row, layout->x_runs, problem.x_stride[2]);
  if (layout->apart) {
    pitches.gy_slot = row_pitch(gy_row, layout->gy_runs, layout->h.dilation * row);
    pitches.gy_tap = pitches.gy_slot;
    pitches.gy_position = row_pitch(layout->block_kh * pitches.gy_slot, layout->gy_runs, layout->h.stride * row);
  } else {
    pitches.gy_slot = row_pitch(gy_row, layout->gy_runs, layout->row_step * row);
    pitches.gy_tap = layout->slot_k * pitches.gy_slot;
    pitches.gy_position = layout->slot_q * pitches.gy_slot;
  }
  const int64_t gy_elems =
      int64_t{layout->apart ? rows : layout->slots} * (layout->apart ? pitches.gy_position : pitches.gy_slot);
  return lay_out_strip_stages(problem, int64_t{rows} * pitches.x_row, gy_elems, layout);
}

// Whether channels are contiguous, or there is only one.
bool has_inner_channels(const int64_t (&stride)[4], int64_t channels) { return stride[1] == 1 || channels == 1; }

}  // namespace

bool serves_mma_grad_weight(const ConvTProblem& problem, const MmaGradWeightInstance& instance) {
  const bool columns_inner = problem.x_stride[3] == 1 && problem.y_stride[3] == 1;
  const bool channels_inner =
      has_inner_channels(problem.x_stride, problem.c_in) && has_inner_channels(problem.y_stride, problem.c_out);
  return instance.operands == WeightOperands::kColumns ? columns_inner : channels_inner && !columns_inner;
}

bool make_mma_grad_weight_layout(const ConvTProblem& problem, const MmaGradWeightTile& plan,
                                 MmaGradWeightLayout* layout) {
  const MmaGradWeightInstance& instance = kMmaGradWeightInstances[plan.instance];
  if (!serves_mma_grad_weight(problem, instance) || plan.strip % kMmaGradWeightPixels != 0) return false;
  const StripTile tile = {
      plan.strip,      1,           plan.block_ci, plan.block_co, plan.block_kh, plan.block_kw, plan.units_per_chunk,
      plan.tile_units, plan.stages,
  };
  if (!lay_out_strips(problem, tile, layout)) return false;
  layout->block_kw = plan.block_kw;
  layout->block_runs = 1;
  layout->warps_ci = layout->warps_co = 1;
  const int64_t gemm_rows = int64_t{plan.block_co} * plan.block_kh * plan.block_kw;
  constexpr int64_t kMostGemmRows = 1 << 10;
  if (gemm_rows > kMostGemmRows) return false;
  layout->rows = static_cast<int32_t>(gemm_rows);
  layout->taps_first = plan.taps_first;
  layout->row_units = ceil_div(layout->rows, 16 * instance.row_tiles);
  layout->column_units = ceil_div(plan.block_ci, 8 * instance.column_tiles);
  layout->warps = layout->row_units * layout->column_units;
  layout->loaders = plan.loaders;
  layout->threads = 32 * (layout->warps + layout->loaders);
  if (layout->threads > kMaxMmaGradWeightThreads) return false;
  layout->steps = plan.strip / kMmaGradWeightPixels;
  set_pixel_order(kPixelOrders[plan.pixel_order], layout);

  layout->x_runs = layout->gy_runs = layout->columns_apart = false;
  const bool fits = instance.operands == WeightOperands::kPixels ? lay_out_pixels(problem, plan, layout)
                                                                 : lay_out_channels(problem, plan, layout);
  if (!fits) return false;
  SharedMemory smem(layout->shared_bytes);
  layout->table_begin = smem.take(16 * 16 * instance.row_tiles * layout->row_units);
  layout->shared_bytes = smem.bytes();
  return true;
}

int64_t pixel_vector_bytes(const int64_t (&stride)[4], int64_t group, int64_t block, DataType dtype) {
  const int64_t element = element_bytes(dtype);
  int64_t bytes = 16;
  auto divides = [&](int64_t elems) { return ((elems & (bytes - 1)) * element & (bytes - 1)) == 0; };  // powers of two
  while (bytes > element &&
         !(divides(stride[0]) && divides(stride[2]) && divides(stride[3]) && divides(group) && divides(block))) {
    bytes /= 2;
  }
  return bytes;
}

double mma_grad_weight_conflicts(const MmaGradWeightLayout& layout, int32_t element, double fewest) {
  const double rows = ceil_div(layout.rows, 8), columns = ceil_div(layout.block_ci, 8);
  auto of_both = [&](double of_row, double of_column) {
    return (rows * of_row + columns * of_column) / (rows + columns);
  };
  // Average wavefronts per read of `size` places, eight adjacent places per read, over a sample of the reads. Stops
  // early if enough(lower bound).
  constexpr int32_t kMostReads = 4;
  int32_t pixels[4];  // first pixels of lanes
  for (int32_t t = 0; t < 4; ++t) pixels[t] = mma_grad_weight_pixel(layout, t);
  auto average = [&](int32_t size, int32_t pixel_step, auto place_of, auto enough) {
    const int32_t reads = ceil_div(size, 8), sample = std::min(reads, kMostReads);
    int32_t wavefronts = sample;
    for (int32_t number = 0; number < sample; ++number) {
      const int32_t first = number * reads / sample * 8;
      BankReads read;
      for (int32_t row = 0; row < 8; ++row) {
        const int32_t place = place_of(std::min(first + row, size - 1));
        for (const int32_t pixel : pixels) read.add((place + pixel * pixel_step) * element / 4);
      }
      wavefronts += read.wavefronts - 1;
      if (enough(static_cast<double>(wavefronts) / sample)) break;
    }
    return static_cast<double>(wavefronts) / sample;
  };
  const double of_column = average(
      layout.block_ci, layout.x_pixel, [&](int32_t channel) { return channel * layout.pitches.x_channel; },
      [&](double least) { return of_both(1, least) >= fewest; });
  if (of_both(1, of_column) >= fewest) return fewest;
  const double of_row = average(
      layout.rows, layout.gy_pixel,
      [&](int32_t row) { return mma_grad_weight_place(layout, mma_grad_weight_row(layout, row)); },
      [&](double least) { return of_both(least, of_column) >= fewest; });
  return of_both(of_row, of_column);
}

double mma_grad_weight_conflicts(const ConvTProblem& problem, const MmaGradWeightTile& tile) {
  MmaGradWeightLayout layout;
  if (!make_mma_grad_weight_layout(problem, tile, &layout)) return HUGE_VAL;
  return mma_grad_weight_conflicts(layout, static_cast<int32_t>(element_bytes(problem.dtype)), HUGE_VAL);
}

double choose_banks(const ConvTProblem& problem, MmaGradWeightTile* tile) {
  const bool columns = kMmaGradWeightInstances[tile->instance].operands == WeightOperands::kColumns;
  const auto element = static_cast<int32_t>(element_bytes(problem.dtype));
  MmaGradWeightTile trial = *tile;
  trial.pixel_order = 0, trial.taps_first = false;
  MmaGradWeightLayout layout;
  double fewest = HUGE_VAL;
  for (int32_t padding = 0; padding < (columns ? 32 * 4 / 16 : 1); ++padding) {
    if (columns) trial.x_padding = trial.gy_padding = padding;
    if (!make_mma_grad_weight_layout(problem, trial, &layout)) continue;
    for (int32_t order = 0; order < kMmaGradWeightOrders; ++order) {
      set_pixel_order(kPixelOrders[order], &layout);
      for (const bool taps_first : {false, true}) {
        layout.taps_first = taps_first;
        const double conflicts = mma_grad_weight_conflicts(layout, element, fewest);
        if (conflicts < fewest) {
          fewest = conflicts, *tile = trial;
          tile->pixel_order = order, tile->taps_first = taps_first;
        }
        if (fewest == 1) return fewest;
      }
    }
  }
  return fewest;
}

}  // namespace convt
