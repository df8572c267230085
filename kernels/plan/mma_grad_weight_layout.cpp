#include <algorithm>

#include "plan/mma_grad_weight.h"

namespace convt {
namespace {

// near, far, next: in pixels, or where negative in parts of a strip: its half, its quarter.
struct PixelOrder {
  int32_t near;
  int32_t far;
  int32_t next;
};
constexpr int32_t kHalf = -2, kQuarter = -4;
constexpr PixelOrder kPixelOrders[kMmaGradWeightOrders] = {
    {1, 2, 4}, {kHalf, 1, 2}, {1, kHalf, 2}, {kHalf, kQuarter, 1}, {kQuarter, kHalf, 1}};

int32_t pixels_of(int32_t value, int32_t strip) { return value > 0 ? value : strip / -value; }

}  // namespace

bool make_mma_grad_weight_layout(const ConvTProblem& problem, const MmaGradWeightPlan& plan,
                                 MmaGradWeightLayout* layout) {
  const MmaGradWeightInstance& instance = kMmaGradWeightInstances[plan.instance];
  if (problem.x_stride[3] != 1 || problem.y_stride[3] != 1 || plan.strip % kMmaGradWeightPixels != 0) return false;
  const WeightTile tile = {
      plan.strip,      1,           plan.block_ci, plan.block_co, plan.block_kh, plan.block_kw, plan.units_per_chunk,
      plan.tile_units, plan.stages,
  };
  if (!lay_out_weight_tile(problem, tile, layout)) return false;
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
  const PixelOrder& order = kPixelOrders[plan.pixel_order];
  layout->near_pixels = pixels_of(order.near, plan.strip);
  layout->far_pixels = pixels_of(order.far, plan.strip);
  layout->next_pixels = order.next;

  // The thin engine's pitches, and `padding` vectors behind each channel.
  const int32_t elems = vector_elements(problem.dtype);
  layout->pitches = make_thin_weight_pitches(*layout, problem);
  layout->pitches.x_channel += plan.x_padding * elems;
  layout->pitches.gy_channel += plan.gy_padding * elems;
  if (!lay_out_weight_stages(problem, layout->pitches.x_channel, layout->pitches.gy_channel, layout)) return false;
  layout->table_begin = layout->shared_bytes;
  layout->shared_bytes += 16 * 16 * instance.row_tiles * layout->row_units;
  return true;
}

double mma_grad_weight_conflicts(const MmaGradWeightLayout& layout, int32_t element) {
  // The average of reads of `size` places, eight neighbours at a time; a sample of them, as tiles have hundreds.
  constexpr int32_t kMostReads = 4;
  auto average = [&](int32_t size, int32_t pixel_step, auto place_of) {
    const int32_t reads = ceil_div(size, 8), sample = std::min(reads, kMostReads);
    int32_t wavefronts = 0;
    for (int32_t number = 0; number < sample; ++number) {
      const int32_t first = number * reads / sample * 8;
      int32_t words[32][32], banks[32] = {}, worst = 0;  // of each bank, different ones
      for (int32_t lane = 0; lane < 32; ++lane) {
        const int32_t pixel = mma_grad_weight_pixel(layout, lane % 4) * pixel_step;
        const int32_t word = (place_of(std::min(first + lane / 4, size - 1)) + pixel) * element / 4, bank = word % 32;
        if (std::find(words[bank], words[bank] + banks[bank], word) != words[bank] + banks[bank]) continue;
        words[bank][banks[bank]++] = word;
        worst = std::max(worst, banks[bank]);
      }
      wavefronts += worst;
    }
    return static_cast<double>(wavefronts) / sample;
  };
  const double of_row = average(layout.rows, layout.w.stride, [&](int32_t row) {
    return mma_grad_weight_place(layout, mma_grad_weight_row(layout, row));
  });
  const double of_column =
      average(layout.block_ci, 1, [&](int32_t channel) { return channel * layout.pitches.x_channel; });
  const double rows = ceil_div(layout.rows, 8), columns = ceil_div(layout.block_ci, 8);
  return (rows * of_row + columns * of_column) / (rows + columns);
}

}  // namespace convt
